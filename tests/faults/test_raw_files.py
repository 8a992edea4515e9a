"""Raw files that somebody has tampered with: their checksums tell, and no pickle among them is obeyed."""

import gzip
import pickle
from pathlib import Path

import pytest
from test_download import Case, cifar_tar, content, md5, tar

from bflp.datasets import download as prepare
from bflp.datasets.download import prepare_built_in, raw_files
from bflp.datasets.registry import BUILT_IN
from bflp.errors import DataError

NOWHERE = "http://127.0.0.1:1/"


class Harm:
    """Makes a file when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self):
        return Path.touch, (self.canary,)


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_byte_of_raw_files_is_checked(name, tmp_path, monkeypatch):
    """A flipped bit in any raw file is noticed, since nothing can be downloaded instead."""
    case = Case(name, NOWHERE, monkeypatch)
    paths = case.place(tmp_path / "raw")
    for path in paths:
        whole = path.read_bytes()
        # Of an archive the part where its content lies.
        position = len(whole) // 2
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        with pytest.raises(DataError):
            prepare_built_in(name, case.built_in, tmp_path / "raw", tmp_path / "out.npz")
        path.write_bytes(whole)
    prepare_built_in(name, case.built_in, tmp_path / "raw", tmp_path / "out.npz")
    case.check(tmp_path / "out.npz")


@pytest.mark.parametrize("name", ["mnist", "kmnist"])
def test_what_is_unpacked_already_is_not_trusted(name, tmp_path, monkeypatch):
    case = Case(name, NOWHERE, monkeypatch)
    packed = case.place(tmp_path / "raw")[0]
    unpacked = packed.with_suffix("")
    content = bytearray(gzip.decompress(packed.read_bytes()))
    content[-1] ^= 1
    unpacked.write_bytes(content)
    prepare_built_in(name, case.built_in, tmp_path / "raw", tmp_path / "out.npz")
    case.check(tmp_path / "out.npz")
    packed.unlink()
    with pytest.raises(DataError, match=rf"{unpacked} can not be checked without {packed.name}"):
        prepare_built_in(name, case.built_in, tmp_path / "raw", tmp_path / "out.npz")


def test_a_folder_of_an_old_torchvision_is_refused(tmp_path, monkeypatch):
    """It holds files for torch.load."""
    case = Case("mnist", NOWHERE, monkeypatch)
    case.place(tmp_path / "raw")
    (tmp_path / "raw" / "MNIST" / "processed").mkdir()
    with pytest.raises(DataError, match="processed is of an old torchvision"):
        prepare_built_in("mnist", case.built_in, tmp_path / "raw", tmp_path / "out.npz")


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_pickled_batches_can_not_do_harm(name, tmp_path, monkeypatch):
    """Even with the right checksums, which only the publisher could arrange."""
    from torchvision import datasets

    case = Case(name, NOWHERE, monkeypatch)
    loader = getattr(datasets, case.built_in.torchvision_class)
    batch = loader.train_list[0][0]
    harm = pickle.dumps({"data": Harm(tmp_path / "canary"), "labels": []})
    trains = {file: ("train", slice(0, 4)) for file, _ in loader.train_list}
    key = "labels" if name == "cifar10" else "fine_labels"
    batches = {**trains, loader.test_list[0][0]: ("test", slice(None))}
    meta = (loader.meta["filename"], {loader.meta["key"]: []})
    members = cifar_tar(content((3, 32, 32)), batches, key, loader.base_folder, meta)
    members[f"{loader.base_folder}/{batch}"] = harm
    known = {Path(file).name: md5(data) for file, data in members.items()}
    raw = tar(members)
    monkeypatch.setattr(loader, "tgz_md5", md5(raw))
    for which in ("train_list", "test_list"):
        monkeypatch.setattr(loader, which, [[file, known[file]] for file, _ in getattr(loader, which)])
    (path,) = raw_files(case.built_in, tmp_path / "raw")
    path.parent.mkdir(parents=True)
    path.write_bytes(raw)
    with pytest.raises(DataError, match=r"a raw file would call pathlib\.Path\.touch"):
        prepare_built_in(name, case.built_in, tmp_path / "raw", tmp_path / "out.npz")
    assert not (tmp_path / "canary").exists()


def test_batches_as_python_2_wrote_them_are_read():
    """The published files are of protocol 2, with byte strings and arrays of numpy 1."""
    import io

    import numpy as np

    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    written = pickle.dumps({b"data": array, b"labels": [1, 2]}, protocol=2).replace(b"numpy._core", b"numpy.core")
    read = prepare._ArraysUnpickler(io.BytesIO(written), encoding="latin1").load()
    np.testing.assert_array_equal(read[b"data"], array)
