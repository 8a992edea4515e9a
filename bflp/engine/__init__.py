"""All that can change a number: client, server, round, evaluation, metrics."""
