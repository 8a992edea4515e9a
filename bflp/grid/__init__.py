"""What is to run: cells, where their files lie, what each depends on, and so what runs again.

Imports no torch: the Snakefile lives on it.
"""
