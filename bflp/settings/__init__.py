"""What a user writes: the typed settings, reading them, explaining mistakes."""
