"""Federated Bayesian deep learning experiments as a Snakemake workflow."""
