"""What reading costs at worst: memory of at most twenty times the input, and time in proportion to it."""

import contextlib
import time
import tracemalloc
import warnings

import pytest

from evoformer.features.alignment import AlignmentError, AlignmentWarning
from evoformer.features.reading import read_alignment

SIZE = 200_000  # bytes


def filled(unit, size, before="", after=""):
    """Copies of a piece of text, the place of each in it where it has a `{}`."""
    numbered = [unit.format(i) for i in range(size // max(1, len(unit.replace("{}", "0000"))))]
    return (before + "".join(numbered) + after).encode()


KINDS = {
    "records": (">a\nA\n",),
    "records of two-letter names": (">ab\nA\n",),
    "records without names": (">\nA\n",),
    "records of many names": (">{}\nA\n",),
    "headers without rows": (">a\n",),
    "only >": (">",),
    "insertions": (">\naA\n",),
    "gaps": (">\n-\n", ">q\nA\n"),
    "stops": (">\nA*\n",),
    "unusual gaps": (">\n_\n", ">q\nA\n"),
    "characters that are no letters": (">\n1\n",),
    "rows of another length": (">\nA\n", "", ">\nAA\n"),
    "annotations": (">ss_\nA\n",),
    "pairs": (">a\tb\nAA\n", "#1,1\t1,1\n"),
    "a header of many chains": ("1,", "#", "1\t1\n>a\nA\n"),
    "a row of ambiguous letters": ("B", ">q\n"),
    "a row of insertions": ("a", ">q\nA"),
    "a row with insertions everywhere": ("aA", ">q\n"),
    "a row with gaps everywhere": ("A-", ">q\n"),
    "a row with blanks everywhere": ("A ", ">q\n"),
    "a row of many lines": ("A\n", ">q\n"),
    "blank lines": ("\n", "", ">q\nA\n"),
    "comments": ("#\n", "", ">q\nA\n"),
    "plain rows": ("A\n",),
    "alignments after NUL": (">\nA\n\0",),
    "plain alignments after NUL": ("A\0",),
    "Stockholm rows": ("{} A\n", "# STOCKHOLM 1.0\n", "//\n"),
    "Stockholm blocks": ("a A\n\n", "# STOCKHOLM 1.0\n", "//\n"),
    "Stockholm ends": ("//\n", "# STOCKHOLM 1.0\n"),
    "Stockholm alignments": ("a A\n//\n", "# STOCKHOLM 1.0\n"),
    "Stockholm descriptions": ("#=GS {} DE a\n", "# STOCKHOLM 1.0\n", "a A\n//\n"),
    "Stockholm descriptions of one row": ("#=GS a DE b\n", "# STOCKHOLM 1.0\n", "a A\n//\n"),
    "Stockholm annotations": ("#=GF\n", "# STOCKHOLM 1.0\n", "a A\n//\n"),
    "Clustal rows": ("{} A\n", "CLUSTAL\n\n"),
    "Clustal blocks": ("a A\n*\n", "CLUSTAL\n\n"),
    "Clustal consensus lines": (":\n", "CLUSTAL\n\n"),
}


def read(data):
    with warnings.catch_warnings(), contextlib.suppress(AlignmentError):
        warnings.simplefilter("ignore", AlignmentWarning)
        return read_alignment(data)


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_at_most_twenty_times_the_input(kind):
    unit, *around = KINDS[kind]
    data = filled(unit, SIZE, *around)
    tracemalloc.start()
    try:
        alignment = read(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del alignment
    assert peak <= 20 * len(data)


@pytest.mark.parametrize("kind", KINDS)
def test_time_is_in_proportion_to_the_input(kind):
    unit, *around = KINDS[kind]

    def seconds(size):
        data = filled(unit, size, *around)
        start = time.process_time()
        read(data)
        return time.process_time() - start

    once, twice = (min(seconds(size) for _ in range(2)) for size in (SIZE // 4, SIZE // 2))
    assert twice < 3 * once + 0.02
