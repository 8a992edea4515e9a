#!/usr/bin/env bash
# Tests and measurements on whatever GPU there is, at most ten minutes; each part runs whatever the others gave.
# Usage: benchmarks/gpu_check.sh [python] [--tiny]; with --tiny few images, without a GPU too, to see that it runs.
set -uo pipefail
cd "$(dirname "$0")/.."
PYTHON=${1:-python} TINY=${2:-}
if [ -z "$TINY" ] && ! "$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
  echo "No CUDA device here: the GPU check was not run."
  exit 0
fi
export CUBLAS_WORKSPACE_CONFIG=:4096:8
failed=0
part() {
  local seconds=$1 began=$SECONDS status=0
  shift
  echo "== $*"
  timeout "$seconds" "$PYTHON" "$@" || status=$?
  echo "== status $status after $((SECONDS - began)) s"
  [ "$status" -eq 0 ] || failed=1
}
if [ -z "$TINY" ]; then
  part 170 -m pytest -q --durations=3 tests/gpu/test_cuda.py
fi
part 180 benchmarks/gpu.py $TINY
# The estimate for the paper's grid: with stacks of ten, and as it is.
part 60 benchmarks/grid_cost.py $TINY --stack 10
part 150 benchmarks/grid_cost.py $TINY
exit $failed
