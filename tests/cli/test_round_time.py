"""Measuring the time of a round."""

from bflp.cli.round_time import measure


def test_each_round_but_the_first_is_measured(tiny):
    times = measure(tiny.assignment(tiny.job()), processes=1, rounds=2)
    assert times.keys() == {"train_seconds", "aggregation_seconds"}
    assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in times.values())
