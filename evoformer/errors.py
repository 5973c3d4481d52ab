"""The base of the errors that scripts report in one line."""


class InputError(ValueError):
    """What the user gave cannot be used; the message names it and says what to do."""
