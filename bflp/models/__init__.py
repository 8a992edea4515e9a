"""LeNet, deterministic and variational."""
