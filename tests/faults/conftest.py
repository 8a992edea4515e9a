"""These tests use the small project and the fabricated run of other tests."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "workflow"), str(TESTS / "datasets")]
