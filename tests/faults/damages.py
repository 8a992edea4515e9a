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
from functools import partial
from pathlib import Path

from file_operations import at_change
from laboratory import Laboratory, Tally
from small_cell import SmallCell, forked, forked_main

from bflp.grid.plan import Plan


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
    """Partition, data and summary, and what an ended run left, truncated or with a bit flipped: noticed or harmless.

    Left are checkpoint, progress and lock of a run that was killed; of one that is done also what is kept of it.
    """
    tally = Tally("partition, data, summary, checkpoint, progress, lock, kept files damaged before training")
    cell, noticed = lab.cell, 0
    with tempfile.TemporaryDirectory(dir=lab.folder) as folder:
        killed, done = Path(folder, "killed"), Path(folder, "done")
        end = cell.train(lambda: at_change(lab.folder, 30, lambda _: os.kill(os.getpid(), signal.SIGKILL)))
        assert end.code == -signal.SIGKILL and cell.checkpoint_round() > 1, end
        shutil.copytree(cell.plan.results, killed)
        end = cell.train()
        assert end.code == 0, end.text
        # Snakemake deletes these before it runs a job again.
        cell.result.unlink()
        cell.model.unlink()
        shutil.copytree(cell.plan.results, done)
        kept = sorted(cell.kept.iterdir())
        inputs = [cell.partition, cell.data, cell.data.with_suffix(".json")]
        targets = [(killed, path) for path in (*inputs, *kept[:1], cell.progress, cell.lock)]
        targets += [(done, path) for path in (*kept, cell.evaluation)]
        for number in range(count):
            state, path = targets[number % len(targets)]
            shutil.rmtree(cell.plan.results)
            shutil.copytree(state, cell.plan.results)
            whole = path.read_bytes()
            how, content = damaged(whole, lab.random)
            path.write_bytes(content)
            end = cell.train()
            what = f"{path.name} of a cell that was {state.name}, {how}"
            if end.code == 0:
                if path in (cell.evaluation, cell.kept / f"{cell.identity()}.evaluation.json"):
                    end = forked_main("evaluate", cell.settings_arguments())
                tally.check(cell.outcome() == lab.expected, f"{what}: another result, {end.text}")
                noticed += "is damaged" in end.text or (state is done and "put back" not in end.text)
            else:
                tally.check(end.one_clear_error and not cell.result.exists(), f"{what}: {end}")
                noticed += 1
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(whole)
    cell.clear()
    tally.notes.append(f"{noticed} noticed, the others harmless")
    return tally


def damaged_results(lab: Laboratory, count: int) -> Tally:
    """What there is of a finished grid, damaged afterwards: `verify` notices, or nothing is changed."""
    tally = Tally("result, evaluation, model, partition, data, results.csv damaged before verify and merge")
    cell = lab.cell
    end = cell.train()
    assert end.code == 0, end.text
    assert forked_main("merge", cell.settings_arguments()).code == 0
    report, noticed = lab.folder / "report.json", 0
    while tally.tried < count:
        generator = random.Random(lab.random.random())
        end = forked(partial(_damage_and_verify, cell, min(count, 490), generator, report))
        assert end.code == 0, end.text
        found = json.loads(report.read_text())
        tally.tried += found["tried"]
        tally.lost += found["lost"]
        noticed += found["noticed"]
    tally.notes.append(f"{noticed} noticed, the others harmless")
    cell.clear()
    return tally


def _damage_and_verify(cell: SmallCell, count: int, generator: random.Random, report_file: Path) -> None:
    from bflp.errors import DataError
    from bflp.provenance.verify import verify

    targets = [
        *cell.made,
        cell.partition,
        cell.partition.with_suffix(".csv"),
        cell.data,
        cell.data.with_suffix(".json"),
        cell.plan.paths.merged,
        cell.plan.paths.merged_rounds,
    ]
    assert not verify(cell.plan).wrong, verify(cell.plan)
    truth = _merged(cell.plan)
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
            if _merged(cell.plan) != truth:
                lost.append(f"{path.name} {how}: merge did not notice")
        except DataError:
            pass
        except Exception as error:
            lost.append(f"{path.name} {how}: {type(error).__name__}: {error}")
        path.write_bytes(whole)
    report_file.write_text(json.dumps({"tried": tried, "noticed": noticed, "lost": lost}))


def _merged(plan: Plan) -> str:
    """What merging writes. Raises DataError."""
    from bflp.provenance.state import refuse_unfit, states
    from bflp.results.frame import frame

    found = states(plan)
    refuse_unfit(found)
    return frame((item.cell, item.result, item.evaluation) for item in found if item.result).to_csv(index=False)


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
