"""Files that are cut off or changed: noticed or harmless."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import tempfile
import zipfile
from pathlib import Path

from file_operations import at_change
from laboratory import Laboratory, Tally, newest
from small_cell import SmallCell, forked, run_main


def damaged(content: bytes, generator: random.Random) -> tuple[str, bytes]:
    """What was done, and the content after it: cut off, a bit flipped, a stretch of zeros, or garbage at the end."""
    kind = generator.choice(("truncated", "flipped", "flipped", "zeros", "longer"))
    position = generator.randrange(len(content))
    if kind == "truncated":
        return f"truncated to {position} of {len(content)} bytes", content[:position]
    if kind == "flipped":
        # Heads and tails of files hold what gives the rest its meaning.
        near_an_end = generator.randrange(min(len(content), 300)) * generator.choice((1, -1)) % len(content)
        position = generator.choice((position, near_an_end))
        bit = generator.randrange(8)
        changed = bytearray(content)
        changed[position] ^= 1 << bit
        return f"bit {bit} of byte {position} flipped", bytes(changed)
    if kind == "zeros":
        length = min(generator.choice((16, 512, 4096)), len(content) - position)
        return f"{length} bytes from {position} zeroed", content[:position] + bytes(length) + content[
            position + length :
        ]
    return "something appended", content + generator.randbytes(generator.choice((1, 100)))


def damaged_inputs(lab: Laboratory, count: int) -> Tally:
    """Checkpoints, partition, data and its summary, truncated or with a bit flipped: noticed or harmless."""
    tally = Tally("checkpoint, partition, prepared data or summary damaged before training")
    cell = lab.cell
    with tempfile.TemporaryDirectory(dir=lab.folder) as kept:
        end = cell.train(lambda: at_change(lab.folder, 45, lambda _: os.kill(os.getpid(), signal.SIGKILL)))
        assert end.code == -signal.SIGKILL and newest(cell) > 1, end
        shutil.copytree(cell.checkpoints, Path(kept, "checkpoints"))
        noticed = 0
        for number in range(count):
            shutil.rmtree(cell.checkpoints, ignore_errors=True)
            shutil.copytree(Path(kept, "checkpoints"), cell.checkpoints)
            targets = [
                max(cell.checkpoints.glob("round*")),
                cell.partition,
                cell.data,
                cell.data.with_suffix(".json"),
            ]
            path = targets[number % len(targets)]
            whole = path.read_bytes()
            how, content = damaged(whole, lab.random)
            path.write_bytes(content)
            end = cell.train()
            what = f"{path.name} {how}"
            if end.code == 0:
                tally.check(cell.outcome() == lab.expected, f"{what}: another result, {end.text}")
                noticed += "is damaged" in end.text
            else:
                tally.check(end.one_clear_error and not cell.result.exists(), f"{what}: {end}")
                noticed += 1
            cell.clear()
            if path.parent != cell.checkpoints:
                path.write_bytes(whole)
        shutil.rmtree(cell.checkpoints, ignore_errors=True)
    tally.notes.append(f"{noticed} noticed, the others harmless")
    return tally


def damaged_results(lab: Laboratory, count: int) -> Tally:
    """Result, model, partition, data and results.csv, damaged afterwards: `verify` notices, or nothing is changed."""
    tally = Tally("result, model, partition, data, results.csv damaged before verify and merge")
    cell = lab.cell
    end = cell.train()
    assert end.code == 0, end.text
    assert forked(lambda: run_main("merge", cell.merge_arguments())).code == 0
    report, noticed = lab.folder / "report.json", 0
    while tally.tried < count:
        seed = lab.random.random()

        def body(seed: float = seed) -> None:
            report.write_text(json.dumps(_damage_and_verify(cell, min(count, 490), random.Random(seed))))

        end = forked(body)
        assert end.code == 0, end.text
        found = json.loads(report.read_text())
        tally.tried += found["tried"]
        tally.lost += found["lost"]
        noticed += found["noticed"]
    tally.notes.append(f"{noticed} noticed, the others harmless")
    cell.clear()
    return tally


def _damage_and_verify(cell: SmallCell, count: int, generator: random.Random) -> dict[str, object]:
    from bflp.errors import DataError
    from bflp.provenance.verify import verify
    from bflp.results.frame import collect

    merged = cell.plan.results / "results.csv"
    targets = [
        cell.result,
        cell.model,
        cell.partition,
        cell.partition.with_suffix(".csv"),
        cell.data,
        cell.data.with_suffix(".json"),
        merged,
    ]
    assert not verify(cell.plan).wrong, verify(cell.plan)
    truth = collect(cell.plan)[0].to_csv(index=False)
    tried, noticed, lost = 0, 0, []
    for number in range(count):
        path = targets[number % len(targets)]
        whole = path.read_bytes()
        how, content = damaged(whole, generator)
        path.write_bytes(content)
        tried += 1
        try:
            report = verify(cell.plan)
            if report.wrong:
                noticed += 1
            elif _means(path, content) != _means(path, whole):
                lost.append(f"{path.name} {how}: verify did not notice")
            frame, stale = collect(cell.plan)
            if not stale and frame.to_csv(index=False) != truth:
                lost.append(f"{path.name} {how}: merge did not notice")
        except DataError:
            pass
        except Exception as error:
            lost.append(f"{path.name} {how}: {type(error).__name__}: {error}")
        path.write_bytes(whole)
    return {"tried": tried, "noticed": noticed, "lost": lost}


def _means(path: Path, content: bytes) -> object:
    """What a file says, apart from how it is written."""
    if path.suffix == ".json":
        return json.loads(content)
    if path.suffix == ".npz":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    if path.suffix == ".safetensors":
        from safetensors.numpy import load

        return {name: tensor.tobytes() for name, tensor in load(content).items()}
    return content
