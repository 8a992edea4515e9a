#!/usr/bin/env bash
# Equality tests and the round-time benchmark on whatever GPU there is, in under six minutes; one table at the end.
# Usage: benchmarks/gpu_check.sh [python]
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${1:-python}
if ! "$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
  echo "No CUDA device here: the GPU check was not run."
  exit 0
fi
"$PYTHON" -c 'import torch; print(torch.cuda.get_device_name(), "- torch", torch.__version__)'
export CUBLAS_WORKSPACE_CONFIG=:4096:8
timeout 150 "$PYTHON" -m pytest -q --durations=3 tests/gpu
timeout 200 "$PYTHON" benchmarks/bench.py --device cuda --processes 1 5 10 --repeats 2 --no-memory
