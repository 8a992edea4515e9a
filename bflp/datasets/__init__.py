"""Data sets: what is built in, how raw files become one prepared file, and how that file is opened."""
