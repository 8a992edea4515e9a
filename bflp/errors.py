"""The errors that a user sees: each is one line that says what is wrong, where, and what to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


class UserError(Exception):
    """An error that the user can fix. Its text is shown alone, without a traceback."""


class ConfigError(UserError):
    """A setting is wrong."""


class DataError(UserError):
    """A data, partition or result file is missing or wrong."""


def run_program(main: Callable[[], Result]) -> Result:
    """Run a command-line program's `main`; end with one line on a UserError (or a failing file operation)."""
    try:
        result = main()
        if sys.stdout is not None:  # None: closed by whoever runs this program
            sys.stdout.flush()
        return result
    except UserError as error:
        sys.exit(f"error: {error}")
    except BrokenPipeError:
        # Whoever reads what this program prints has seen enough, as `head` has. Nothing more can be printed to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno is None:
            raise
        name = f": {error.filename}" if error.filename else ""
        sys.exit(f"error: {error.strerror}{name}")
    except MemoryError:
        sys.exit("error: there is not enough memory")
