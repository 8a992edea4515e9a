"""What the rules run: `bflp VERB ...` of the project that this file lies in, whether a package is installed or not."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bflp.cli import main

if __name__ == "__main__":
    main(sys.argv[1:])
