"""What belongs to published papers: their numbers, comparison, claims, reproduction."""
