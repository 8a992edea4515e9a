"""What a person writes: the typed settings, reading them, explaining mistakes."""
