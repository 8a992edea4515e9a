"""The paper's runtime measurement: wall clock of the clients' local training in a communication round.

Aggregation is outside it, as in the paper, and measured beside it.
"""

from __future__ import annotations

from dataclasses import replace

from bflp.engine.round import Federation
from bflp.runtime.inputs import Assignment
from bflp.runtime.pool import executor
from bflp.runtime.rule import checked_rule


def measure(assignment: Assignment, processes: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of local training and of aggregation in each of `rounds` rounds, after one round to warm up."""
    work = assignment.work()
    # Nothing is evaluated: the last round is never reached.
    work.settings = replace(work.settings, every=rounds + 2, rounds=rounds + 2)
    federation = Federation(work, 1, checked_rule(assignment))
    server, seconds = federation.initial(), []
    with executor(assignment, work, processes) as pool:
        for round_ in range(1, rounds + 2):
            outcome = federation.round(server, round_, pool)
            server = outcome.server
            seconds.append(outcome.seconds)
    return {
        "train_seconds": [each[0] for each in seconds[1:]],
        "aggregation_seconds": [each[1] for each in seconds[1:]],
    }
