"""Federated learning: local training, the pool that executes it, the server's round loop, checkpoints."""
