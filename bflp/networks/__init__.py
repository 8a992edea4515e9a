"""The networks, as functions of a flat parameter vector."""
