"""What can go wrong while numbers are computed. Plain exceptions: bflp.runtime turns them into words."""

from __future__ import annotations


class NotFiniteError(Exception):
    """A loss, a parameter or a metric became NaN or infinite."""


class DivergedError(Exception):
    """Training diverged. client: None for the global model."""

    def __init__(self, round_: int, client: int | None, reason: str) -> None:
        super().__init__(round_, client, reason)
        self.round, self.client, self.reason = round_, client, reason
