"""The base of the errors that scripts report in one line, and what scripts share to do so."""

import argparse
import importlib.util
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn


class InputError(ValueError):
    """What the user gave cannot be used; the message names it and says what to do."""


class ArgumentParser(argparse.ArgumentParser):
    """Python's, with errors of one line, and without abbreviated options."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        raise InputError(f"{message}; --help lists the arguments")


def require(*modules: str) -> None:
    """See that optional packages are there, before work is done that needs them at its end.

    Raises:
        InputError: some are not; the message says how to install them.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"{', '.join(missing)} not installed: pip install 'evoformer[train]' brings what is needed")


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """End the process with a line instead of a traceback where the user's input is at fault; warn in one line, too."""
    warnings.showwarning = lambda message, *rest: print(f"warning: {message}", file=sys.stderr)
    try:
        yield
    except InputError as error:
        sys.exit(f"error: {error}")
