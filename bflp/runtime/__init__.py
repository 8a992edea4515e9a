"""Who executes the engine, and how it survives: pool, checkpoints, locks, devices, progress. Changes no number."""
