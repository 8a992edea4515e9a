"""The results of cells: their form, reading and writing, the tidy data frame."""
