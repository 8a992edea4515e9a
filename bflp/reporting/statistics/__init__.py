"""From results to answers: differences of rows that are paired by seed, what can be claimed, and what can not."""
