"""What is uploaded with a paper: one zip file of a finished grid, and its check without the project's data."""
