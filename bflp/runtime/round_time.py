"""The paper's runtime measurement: wall clock of the clients' local training in a communication round.

Aggregation is outside it, as in the paper, and measured beside it.
"""

from __future__ import annotations

import time
from typing import Any

from bflp.grid.job import Job
from bflp.runtime import pool
from bflp.runtime.cell import executor_for


def measure(job: Job, processes: int, rounds: int) -> dict[str, Any]:
    """Seconds of local training and of aggregation in each of `rounds` rounds, after one round to warm up."""
    pool.start_server()
    import numpy as np

    from bflp.engine.server import Aggregator, select_clients
    from bflp.rng import torch_generator
    from bflp.runtime.worker import Worker

    worker = Worker(job)
    sizes = worker.partition.sizes
    aggregator = Aggregator(job, worker.layout)
    initial = job.settings.get("posterior", {}).get("log_variance", {"initial": 0.0})["initial"]
    model = worker.layout.initial_vector(initial, torch_generator(job.seed, "initial model"))
    train_seconds, aggregation_seconds = [], []
    with executor_for(job, worker, processes) as executor:
        for round_ in range(1, rounds + 2):
            clients = select_clients(job.seed, round_, len(sizes), job.settings["setup"]["fraction"])
            start = time.perf_counter()
            trained = executor.run(model, [("train", round_, client, float(sizes[client])) for client in clients])
            trained_at = time.perf_counter()
            model = aggregator.combine(np.stack([vector for vector, *_ in trained]), sizes[clients], round_)
            train_seconds.append(trained_at - start)
            aggregation_seconds.append(time.perf_counter() - trained_at)
    return {"train_seconds": train_seconds[1:], "aggregation_seconds": aggregation_seconds[1:]}
