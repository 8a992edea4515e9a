"""Reading label counts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bflp.errors import DataError
from bflp.reporting.figures.loading import read_label_counts


def test_label_counts(tmp_path: Path) -> None:
    file = tmp_path / "seed0.csv"
    file.write_text("client,samples,label0,label1\n0,3,1,2\n1,4,4,0\n")
    assert read_label_counts(file).tolist() == [[1, 2], [4, 0]]
    file.write_text("client,samples,label0\n0,x,y\n")
    with pytest.raises(DataError, match=re.escape(str(file))):
        read_label_counts(file)
    with pytest.raises(DataError, match="there is no"):
        read_label_counts(tmp_path / "absent.csv")
