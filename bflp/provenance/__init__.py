"""In which state a cell is, and why; checking a whole results folder."""
