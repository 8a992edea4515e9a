"""The `bflp` command: what people type."""
