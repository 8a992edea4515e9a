"""What is to run: cells, where their files lie, what each depends on. Imports no torch: the Snakefile lives on it."""
