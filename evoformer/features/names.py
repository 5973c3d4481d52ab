"""Names of many sequences in little memory."""

from array import array
from collections.abc import Iterable, Sequence
from typing import overload


class Names(Sequence[str]):
    """Strings one after another in one piece of memory: a string object of its own would take fifty bytes more."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._text = bytearray()
        self._ends = array("q")
        self.extend(names)

    def extend(self, names: Iterable[str]) -> None:
        """Add names at the end."""
        for name in names:
            self._text += name.encode("utf-8", "surrogatepass")
            self._ends.append(len(self._text))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        place = range(len(self))[index]
        start = self._ends[place - 1] if place else 0
        return self._text[start : self._ends[place]].decode("utf-8", "surrogatepass")
