"""What is measured on held-out samples: on all of them together, by nothing that changes another number."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from bflp.datasets import prepared
from bflp.engine.inputs import EVALUATION_CHUNK
from bflp.engine.round import Federation
from bflp.engine.work import Broadcast, Evaluate
from bflp.errors import DataError
from bflp.partition import files
from bflp.results.file import read_result
from bflp.results.result import HeldOut, Result
from bflp.runtime.pool import SerialExecutor
from bflp.runtime.rule import checked_rule

SHARE = 0.3
PARTITION = {"uneven": {"strategy": "iid", "held_out": SHARE}}


def held_out_partition(tiny, **overrides):
    """The tiny data set's 120 samples with a share held out, as the workflow would write it; its path."""
    plan = tiny.plan(partitions=PARTITION, **overrides)
    data = prepared.open_prepared(tiny.data_file)
    job = json.loads(plan.partition_job_of(plan.cells[0]))
    path = tiny.folder / "held_out.npz"
    files.save(files.make(data.train_labels, job, data.content_hash()), data.train_labels, path)
    return path


def work_of(tiny, model, rule, path):
    job = tiny.job(model, rule, partitions=PARTITION)
    return dataclasses.replace(tiny.assignment(job), partition_file=path)


def rounds(work, assignment):
    """The model after two rounds, and their curves."""
    federation = Federation(work, 20, checked_rule(assignment))
    server, curves = federation.initial(), []
    for round_ in (1, 2):
        outcome = federation.round(server, round_, SerialExecutor(work))
        server = outcome.server
        curves.append(outcome.curves)
    return server.model, curves


@pytest.mark.parametrize(("model", "rule"), [("FEDAVG", None), ("FVBWA", "EAA")])
def test_measuring_changes_neither_model_nor_curves(tiny, model, rule):
    path = held_out_partition(tiny)
    assignment = work_of(tiny, model, rule, path)
    work = assignment.work()
    blind = assignment.work()
    blind.inputs = dataclasses.replace(blind.inputs, held_out=None)
    with_it, curves = rounds(work, assignment)
    without, plain = rounds(blind, assignment)
    assert torch.equal(with_it, without)
    assert [{key: value for key, value in curve.items() if key != "held_out"} for curve in curves] == plain
    assert all(curve["held_out"].keys() == {"accuracy", "ece", "nll"} for curve in curves)


def test_every_round_source_and_part_has_noise_of_its_own(tiny):
    """Of one image, again and again."""
    work = work_of(tiny, "FVBWA", "EAA", held_out_partition(tiny)).work()
    first = work.inputs.held_out[:1]
    many = np.repeat(work.inputs.train_inputs[first], 2 * EVALUATION_CHUNK, axis=0)
    alike = {"test_inputs": many, "ood_inputs": many, "held_out": np.repeat(first, EVALUATION_CHUNK)}
    work.inputs = dataclasses.replace(work.inputs, **alike)
    tasks = [Evaluate(1, 0, 1), Evaluate(2, 0, 1), Evaluate(1, 1, 1)]
    tasks += [Evaluate(1, 0, 1, source) for source in ("held out", "out of distribution")]
    found = {work.evaluate(Broadcast(work.initial), task)[0].tobytes() for task in tasks}
    assert len(found) == len(tasks)


def test_the_metrics_are_those_of_all_held_out_samples_together(tiny):
    """Against a forward pass of the plain torch module over the samples that the partition's file holds out."""
    path = held_out_partition(tiny)
    work = work_of(tiny, "FEDAVG", None, path).work()
    partition, data = files.load(path), prepared.open_prepared(tiny.data_file)
    clients = np.split(partition.held_out_indices, partition.held_out_offsets[1:-1])
    samples = np.concatenate(clients)
    assert len(samples) == sum(round(SHARE * (len(partition.client(k)) + len(clients[k]))) for k in range(4)) > 20
    assert not set(samples) & set(partition.indices)
    model, curves = rounds(work, work_of(tiny, "FEDAVG", None, path))
    module = work.network.module(model)
    images = torch.from_numpy(data.train_inputs[samples].astype(np.float32) / 255)
    labels = torch.from_numpy(data.train_labels[samples])
    with torch.no_grad():
        logits = module(images)
    found = curves[-1]["held_out"]
    assert found["accuracy"] == pytest.approx(100 * float((logits.argmax(1) == labels).double().mean()))
    assert found["nll"] == pytest.approx(float(F.cross_entropy(logits.double(), labels)), rel=1e-4)
    confidence, hit = (part.double().numpy() for part in (logits.softmax(1).amax(1), logits.argmax(1) == labels))
    bins = np.ceil(confidence * 20)
    gaps = [abs(hit[bins == b].sum() - confidence[bins == b].sum()) for b in np.unique(bins)]
    assert found["ece"] == pytest.approx(100 * sum(gaps) / len(samples), rel=1e-4)


@pytest.mark.slow
def test_a_cell_records_them_and_any_number_of_processes_the_same(tiny):
    path = held_out_partition(tiny)
    job = tiny.job("FVBWA", "EAA", partitions=PARTITION)
    one = tiny.run(job, "one", partition=path)
    two = tiny.run(job, "two", processes=2, partition=path)
    assert one[1:] == two[1:]
    result = read_result(tiny.folder / "one.json", job.cell)
    assert [entry.round for entry in result.rounds] == [1, 2, 3]
    assert all(isinstance(entry.held_out, HeldOut) for entry in result.rounds)
    assert len({entry.held_out.nll for entry in result.rounds if entry.held_out}) == 3


def test_without_held_out_samples_a_result_has_no_word_of_them(tiny):
    job = tiny.job("FEDAVG", None)
    tiny.run(job)
    text = (tiny.folder / "cell.json").read_text()
    assert "held_out" not in text
    assert read_result(tiny.folder / "cell.json", job.cell).rounds[0].held_out is None


def test_a_result_that_lacks_them_is_refused(tiny):
    path = held_out_partition(tiny)
    job = tiny.job("FEDAVG", None, partitions=PARTITION)
    tiny.run(job, partition=path)
    result = read_result(tiny.folder / "cell.json", job.cell).model_dump()
    del result["rounds"][1]["held_out"]
    with pytest.raises(ValueError, match="held_out: is there where the partition holds samples out"):
        Result.model_validate(result)


def test_a_share_of_no_sample_is_refused(tiny):
    plan = tiny.plan(partitions={"uneven": {"strategy": "iid", "held_out": 0.01}})
    job = json.loads(plan.partition_job_of(plan.cells[0]))
    data = prepared.open_prepared(tiny.data_file)
    with pytest.raises(
        DataError, match=r"tiny/uneven holds out no sample of any client: raise partitions\.uneven\.held"
    ):
        files.make(data.train_labels, job, data.content_hash())
