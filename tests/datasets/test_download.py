"""From raw files to prepared files: torchvision with raw files in place, from a server, and without network."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import http.server
import io
import json
import os
import pickle
import shutil
import socket
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from bflp.datasets import download as prepare
from bflp.datasets import prepared as arrays
from bflp.datasets.download import is_current, is_untouched, prepare_built_in, prepare_source, raw_files, source_hash
from bflp.datasets.registry import BUILT_IN
from bflp.errors import DataError

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
TRAIN, TEST = 20, 10
Arrays = dict[str, np.ndarray[Any, Any]]


def content(shape: tuple[int, ...]) -> Arrays:
    """Images [N, *shape] and labels."""
    generator = np.random.default_rng(1)
    result: Arrays = {}
    for split, count in (("train", TRAIN), ("test", TEST)):
        result[f"{split}_images"] = generator.integers(0, 256, (count, *shape), dtype=np.uint8)
        result[f"{split}_labels"] = generator.permutation(np.arange(count) % 10)
    return result


def idx(array: np.ndarray[Any, Any]) -> bytes:
    """The format of MNIST's files, gzipped."""
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return gzip.compress(header + array.astype(np.uint8).tobytes(), mtime=0)


def idx_files(given: Arrays) -> dict[str, bytes]:
    names = {"train": "train", "test": "t10k"}
    return {
        f"{names[split]}-{kind}-idx{dimensions}-ubyte.gz": idx(given[f"{split}_{kind}"])
        for split in ("train", "test")
        for kind, dimensions in (("images", 3), ("labels", 1))
    }


def cifar_tar(
    given: Arrays, batches: dict[str, tuple[str, slice]], key: str, folder: str, meta: Any
) -> dict[str, bytes]:
    """The members of CIFAR's archive: name -> pickled batch."""
    members = {}
    for name, (split, part) in batches.items():
        images = given[f"{split}_images"][part]
        batch = {"data": images.reshape(len(images), -1), key: given[f"{split}_labels"][part].tolist()}
        members[f"{folder}/{name}"] = pickle.dumps(batch)
    members[f"{folder}/{meta[0]}"] = pickle.dumps(meta[1])
    return members


def tar(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Serves `files` at their names on this machine, and counts what was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Answer)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Answer(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        self.server.asked.append(name)
        if name not in self.server.files:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.files[name])))
        self.end_headers()
        self.wfile.write(self.server.files[name])

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def closed() -> str:
    """The address of a server that does not run."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/"


class Case:
    """A small stand-in for a built-in data set: what it holds, its raw files, and torchvision told their checksums."""

    def __init__(self, name: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        from torchvision import datasets

        self.name = name
        self.built_in = dataclasses.replace(BUILT_IN[name], train_size=TRAIN, test_size=TEST, sha256="")
        loader = getattr(datasets, self.built_in.torchvision_class)
        self.given = content((28, 28) if name.endswith("mnist") else (3, 32, 32))
        if name.endswith("mnist"):
            self.raw = idx_files(self.given)
            monkeypatch.setattr(loader, "mirrors", [url])
            monkeypatch.setattr(loader, "resources", [(file, md5(data)) for file, data in self.raw.items()])
        elif name == "svhn":
            self.raw = {}
            for split in ("train", "test"):
                # 32 x 32 x 3 x N, and the digit 0 has label 10.
                labels = np.where(self.given[f"{split}_labels"] == 0, 10, self.given[f"{split}_labels"])
                buffer = io.BytesIO()
                images = self.given[f"{split}_images"].transpose(2, 3, 1, 0)
                scipy.io.savemat(buffer, {"X": images, "y": labels[:, None].astype(np.uint8)})
                self.raw[f"{split}_32x32.mat"] = buffer.getvalue()
            lists = {split: [url + f"{split}_32x32.mat", f"{split}_32x32.mat"] for split in ("train", "test")}
            sums = {split: [*entry, md5(self.raw[entry[1]])] for split, entry in lists.items()}
            monkeypatch.setattr(loader, "split_list", sums)
        else:
            members = self._cifar(loader)
            self.raw = {loader.filename: tar(members)}
            known = {Path(file).name: md5(data) for file, data in members.items()}
            monkeypatch.setattr(loader, "url", url + loader.filename)
            monkeypatch.setattr(loader, "tgz_md5", md5(self.raw[loader.filename]))
            for which in ("train_list", "test_list"):
                entries = [[file, known[file]] for file, _ in getattr(loader, which)]
                monkeypatch.setattr(loader, which, entries)
            monkeypatch.setattr(loader, "meta", {**loader.meta, "md5": known[loader.meta["filename"]]})

    def _cifar(self, loader: Any) -> dict[str, bytes]:
        trains = [file for file, _ in loader.train_list]
        size = TRAIN // len(trains)
        batches = {file: ("train", slice(at * size, (at + 1) * size)) for at, file in enumerate(trains)}
        batches[loader.test_list[0][0]] = ("test", slice(None))
        key = "labels" if self.name == "cifar10" else "fine_labels"
        meta = (loader.meta["filename"], {loader.meta["key"]: list("abcdefghij")})
        return cifar_tar(self.given, batches, key, loader.base_folder, meta)

    def place(self, folder: Path) -> list[Path]:
        """Put the raw files where a person would."""
        paths = raw_files(self.built_in, folder)
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.raw[path.name])
        return paths

    def check(self, output: Path) -> None:
        dataset = arrays.open_prepared(output)
        for name, found in dataset.arrays().items():
            assert found.dtype == (np.uint8 if name.endswith("images") else np.int64)
            np.testing.assert_array_equal(found.reshape(self.given[name].shape), self.given[name])
        assert dataset.train_inputs.ndim == 4
        assert arrays.read_summary(output)["sha256"] == dataset.content_hash()


def error_of(case: Case, folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        prepare_built_in(case.name, case.built_in, folder / "raw", folder / "out.npz")
    assert "\n" not in str(caught.value)
    assert not (folder / "out.npz").exists()
    return str(caught.value)


@pytest.mark.parametrize("name", BUILT_IN)
def test_raw_files_in_place_need_no_network(
    name: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(name, server.url, monkeypatch)
    case.place(tmp_path / "raw")
    prepare_built_in(name, case.built_in, tmp_path / "raw", tmp_path / "out.npz")
    case.check(tmp_path / "out.npz")
    assert server.asked == []


@pytest.mark.parametrize("name", BUILT_IN)
def test_downloads(name: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(name, server.url, monkeypatch)
    server.files = case.raw
    prepare_built_in(name, case.built_in, tmp_path / "raw", tmp_path / "out.npz")
    case.check(tmp_path / "out.npz")
    assert set(server.asked) == set(case.raw)
    # What was downloaded stays, and serves a second time.
    server.asked.clear()
    assert all(path.exists() for path in raw_files(case.built_in, tmp_path / "raw"))
    prepare_built_in(name, case.built_in, tmp_path / "raw", tmp_path / "again.npz")
    assert server.asked == []


def test_a_download_that_is_not_what_it_should_be(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("fmnist", server.url, monkeypatch)
    server.files = {name: data[:-9] + bytes(9) for name, data in case.raw.items()}
    assert "fmnist (Fashion-MNIST) could not be downloaded or read" in error_of(case, tmp_path)


@pytest.mark.parametrize("name", ["fmnist", "cifar10", "svhn"])
def test_without_network_the_missing_files_are_named(
    name: str, closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(name, closed, monkeypatch)
    began = time.monotonic()
    text = error_of(case, tmp_path)
    assert time.monotonic() - began < 10
    assert all(str(path) in text for path in raw_files(case.built_in, tmp_path / "raw"))
    assert f"datasets: {{{name}: {{source: path/to/{name}.npz}}}}" in text
    assert "refused" in text


def test_only_what_is_missing_is_named(closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("svhn", closed, monkeypatch)
    there, missing = case.place(tmp_path / "raw")
    missing.unlink()
    text = error_of(case, tmp_path)
    assert str(missing) in text
    assert str(there) not in text


def test_a_damaged_raw_file(closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("cifar10", closed, monkeypatch)
    (path,) = case.place(tmp_path / "raw")
    path.write_bytes(path.read_bytes()[:-5])
    text = error_of(case, tmp_path)
    assert "damaged" in text
    assert str(path) in text


def test_a_server_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As behind a firewall that drops packets: connections are made, and nothing comes.
    monkeypatch.setattr(prepare, "SECONDS_WITHOUT_ANSWER", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        for name in ("fmnist", "cifar10", "svhn"):
            began = time.monotonic()
            text = error_of(Case(name, url, monkeypatch), tmp_path)
            assert time.monotonic() - began < 10
            assert "timed out" in text
    assert socket.getdefaulttimeout() is None


def test_raw_files_of_another_size(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("mnist", server.url, monkeypatch)
    case.place(tmp_path / "raw")
    case.built_in = dataclasses.replace(case.built_in, train_size=60000)
    text = error_of(case, tmp_path)
    assert "20 training and 10 test images" in text
    assert "60000" in text


def test_files_compressed_anew_are_used_where_the_contents_hash_is_known(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("fmnist", server.url, monkeypatch)
    paths = case.place(tmp_path / "raw")
    for path in paths:
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), compresslevel=1, mtime=5))
    shape = {"train_images": (TRAIN, 1, 28, 28), "test_images": (TEST, 1, 28, 28)}
    expected = arrays.as_dataset({name: case.given[name].reshape(shape.get(name, -1)) for name in case.given})
    case.built_in = dataclasses.replace(case.built_in, sha256=expected.content_hash())
    prepare_built_in("fmnist", case.built_in, tmp_path / "raw", tmp_path / "out.npz")
    case.check(tmp_path / "out.npz")
    assert server.asked == []
    # Another data set's files under these names.
    (tmp_path / "out.npz").unlink()
    case.built_in = dataclasses.replace(case.built_in, sha256="0" * 64)
    assert "are not those of Fashion-MNIST" in error_of(case, tmp_path)


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_the_real_fashion_mnist_from_debians_files(
    closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchvision.datasets import FashionMNIST

    monkeypatch.setattr(FashionMNIST, "mirrors", [closed])
    for path in raw_files(BUILT_IN["fmnist"], tmp_path / "raw"):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(DEBIAN / path.name, path)
    prepare_built_in("fmnist", BUILT_IN["fmnist"], tmp_path / "raw", tmp_path / "fmnist.npz")
    dataset = arrays.open_prepared(tmp_path / "fmnist.npz")
    assert dataset.train_inputs.shape == (60000, 1, 28, 28)
    assert dataset.test_inputs.shape == (10000, 1, 28, 28)
    assert np.bincount(dataset.train_labels).tolist() == [6000] * 10
    with gzip.open(DEBIAN / "t10k-images-idx3-ubyte.gz") as file:
        original = np.frombuffer(file.read(), np.uint8, offset=16).reshape(10000, 1, 28, 28)
    np.testing.assert_array_equal(dataset.test_inputs, original)


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_byte_of_raw_files_is_checked(
    name: str, closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flipped bit in any raw file is noticed, since nothing can be downloaded instead."""
    case = Case(name, closed, monkeypatch)
    for path in case.place(tmp_path / "raw"):
        whole = path.read_bytes()
        # Of an archive the part where its content lies.
        position = len(whole) // 2
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        error_of(case, tmp_path)
        path.write_bytes(whole)
    prepare_built_in(name, case.built_in, tmp_path / "raw", tmp_path / "out.npz")
    case.check(tmp_path / "out.npz")


@pytest.mark.parametrize("name", ["fmnist", "mnist", "kmnist"])
def test_what_is_unpacked_already_is_not_trusted(
    name: str, closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a program that was killed while it unpacked leaves it."""
    case = Case(name, closed, monkeypatch)
    packed = case.place(tmp_path / "raw")[0]
    packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes())[:-1] + b"x")
    prepare_built_in(name, case.built_in, tmp_path / "raw", tmp_path / "out.npz")
    case.check(tmp_path / "out.npz")


# A person's own source -----------------------------------------------------------------------------------------------


def test_a_source_is_prepared_and_stamped(tmp_path: Path) -> None:
    source, output = tmp_path / "mine.npz", tmp_path / "data" / "mine.npz"
    np.savez_compressed(source, val_labels=np.zeros(3), **content((16, 20)))  # type: ignore[arg-type]
    assert not is_current(source, output)
    assert prepare_source(source, output) == ["not used: val_labels"]
    assert is_current(source, output)
    stamp = json.loads((tmp_path / "data" / "mine.source.json").read_text(encoding="utf-8"))
    assert stamp["sha256"] == hashlib.sha256(source.read_bytes()).hexdigest() == source_hash(source, output)
    os.utime(source, (0, 0))
    assert is_current(source, output)
    assert source_hash(source, output) == stamp["sha256"]
    changed = content((16, 20))
    changed["train_images"] = 255 - changed["train_images"]
    np.savez_compressed(source, **changed)  # type: ignore[arg-type]
    assert not is_current(source, output)
    assert source_hash(source, output) == hashlib.sha256(source.read_bytes()).hexdigest() != stamp["sha256"]


def test_another_file_of_the_same_size_and_time_is_another_source(tmp_path: Path) -> None:
    first, second, output = tmp_path / "first.npz", tmp_path / "second.npz", tmp_path / "data" / "mine.npz"
    arrays = content((16, 16))
    np.savez(first, **arrays)  # type: ignore[arg-type]
    np.savez(second, **{**arrays, "train_images": 255 - arrays["train_images"]})  # type: ignore[arg-type]
    for file in (first, second):
        os.utime(file, (1_700_000_000, 1_700_000_000))
    assert first.stat().st_size == second.stat().st_size
    prepare_source(first, output)
    assert is_untouched(first, output) and not is_untouched(second, output)
    assert source_hash(second, output) == hashlib.sha256(second.read_bytes()).hexdigest() != source_hash(first, output)


def test_a_sources_hash_is_not_taken_anew_while_size_and_time_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = tmp_path / "mine.npz", tmp_path / "data" / "mine.npz"
    np.savez(source, **content((16, 16)))  # type: ignore[arg-type]
    prepare_source(source, output)
    monkeypatch.setattr(prepare, "_file_hash", lambda path: "read again")
    assert source_hash(source, output) != "read again"
    source.touch()
    assert source_hash(source, output) == "read again"
    (tmp_path / "data" / "mine.source.json").write_text("[]", encoding="utf-8")
    assert source_hash(source, output) == "read again"
