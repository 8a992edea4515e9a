"""One thread per library, set before any is imported: sums must not depend on the machine's cores."""

import os

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

pytest_plugins = ["tests.tiny_federation"]
