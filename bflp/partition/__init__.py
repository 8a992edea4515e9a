"""Ways to split a training set over clients: one file per strategy, each with a function `split`.

    split(labels, clients, settings, generator) -> list of index arrays, one per client

Every sample goes to exactly one client.
"""
