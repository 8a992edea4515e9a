"""What ends a cell's job."""

from __future__ import annotations

from bflp.errors import UserError


class HopelessError(UserError):
    """A failure that another try would run into again."""
