"""The base of the errors that scripts report in one line."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class InputError(ValueError):
    """What the user gave cannot be used; the message names it and says what to do."""


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """End the process with a line instead of a traceback where the user's input is at fault."""
    try:
        yield
    except InputError as error:
        sys.exit(f"error: {error}")
