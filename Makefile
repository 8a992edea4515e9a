# make demo    the paper's tables on a small data set, in minutes
# make test    everything is checked
# make test-quick    the inner loop: without workflow, faults, browser, TeX, SLURM and what takes long; about two minutes
# make check   style and types
# make bench   speed and memory, about ten minutes
# make setup   what all share: a virtual environment in .venv with pinned packages and the command `bflp`
# make setup CPU=1   the same without CUDA, for a machine without an NVIDIA GPU

PYTHON ?= python3
BIN := $(CURDIR)/.venv/bin
export PATH := $(BIN):$(PATH)

# A file's tests share what they set up.
PYTEST := "$(BIN)/python" -m pytest -n 2 --dist loadfile --no-loadscope-reorder

ifdef CPU
SIZE := 1.5 GB, without CUDA
PACKAGES := -r .venv/requirements-cpu.txt --extra-index-url https://download.pytorch.org/whl/cpu
else
SIZE := 6 GB
PACKAGES := -r envs/requirements.txt
endif

.PHONY: setup demo test test-quick check bench lock clean

setup: .venv/bin/bflp

# The project itself, where it stands; this needs no network.
.venv/bin/bflp: .venv/installed
	@"$(BIN)/pip" install --disable-pip-version-check --quiet --no-deps --no-build-isolation --editable . && touch $@
	@echo "Set-up is done."

.venv/installed: envs/requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "error: Python 3.11 or newer is needed; name one with: make setup PYTHON=python3.12"; exit 1; }
	@echo "Setting up: a virtual environment in .venv (about $(SIZE); PyTorch is large, this takes some minutes)"
	@$(PYTHON) -m venv .venv \
	  || { rm -rf .venv; echo "error: Python's venv module is incomplete; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@rm -f .venv/installed
	@sed -E -f envs/cpu.sed envs/requirements.txt > .venv/requirements-cpu.txt
	@{ "$(BIN)/pip" install --disable-pip-version-check --progress-bar off $(PACKAGES) && touch .venv/installed; } \
	  | grep --line-buffered -E '^(Collecting|Downloading|Installing|Successfully|ERROR)' | cut -c 1-100
	@test -f .venv/installed \
	  || { echo "error: the packages could not be installed, pip says above why; try again with: make setup"; exit 1; }
	@"$(BIN)/python" -c 'import torch, torchvision, snakemake' || { rm -f .venv/installed; exit 1; }

demo: setup
	@echo "Training 48 small cells: 12 rows x 2 partitions x 2 seeds"
	@"$(BIN)/snakemake" --cores all --configfile examples/demo.yaml --quiet rules reason host
	@"$(BIN)/bflp" tables --configfile examples/demo.yaml --show

test: setup
	@$(PYTEST)

test-quick: setup
	@$(PYTEST) -m "not slow"

check: setup
	@"$(BIN)/ruff" check . && "$(BIN)/ruff" format --check . && "$(BIN)/snakefmt" --check Snakefile && "$(BIN)/mypy"

bench: setup
	@"$(BIN)/python" benchmarks/bench.py

lock:
	uv pip compile --universal --python-version 3.11 --no-header --quiet envs/requirements.in -o envs/requirements.txt

clean:
	rm -rf results/demo
