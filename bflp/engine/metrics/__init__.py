"""Metrics of predictions: one file each, found by its name (see registry.py)."""
