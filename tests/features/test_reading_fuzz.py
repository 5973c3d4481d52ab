"""read_alignment on anything: an alignment or an AlignmentError, soon.

The environment's `EXAMPLES=100000` fuzzes longer, pytest's `--hypothesis-seed=1` elsewhere.
"""

import bz2
import gzip
import lzma
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evoformer.features.alignment import AlignmentError, AlignmentWarning
from evoformer.features.reading import read_alignment

CASES = [path.read_bytes() for path in sorted((Path(__file__).parents[1] / "cases").glob("[0-9]*"))]
FORMATS = ["auto", "a3m", "a2m", "fasta", "stockholm", "clustal", "plain"]
SECONDS = 2.0  # for inputs of at most some thousand bytes, on a busy machine

fuzz = settings(
    max_examples=int(os.environ.get("EXAMPLES", "250")), deadline=None, suppress_health_check=list(HealthCheck)
)

options = st.fixed_dictionaries(
    {"format": st.sampled_from(FORMATS)},
    optional={
        "index": st.integers(-1, 2),
        "max_seqs": st.integers(0, 4),
        "query": st.sampled_from(["", "MKT", "MKTAYWQLNDEG", "é"]),
        "uppercase": st.booleans(),
        "strict": st.booleans(),
    },
)

rows = st.text("AKMTCBZUJOXakmt-.*_~ \t1é", max_size=12)
names = st.text("ab/|.:;#>=-_1é\t ", max_size=6)
line = st.one_of(
    rows,
    st.builds(">{}".format, names),
    st.builds("{} {}".format, names, rows),
    st.builds("{} {} {}".format, names, rows, st.integers(-1, 99)),
    st.builds("#=GS {} DE {}".format, names, names),
    st.builds("#{}\t{}".format, st.integers(0, 20), st.integers(0, 3)),
    st.sampled_from(
        ["", "//", "# STOCKHOLM 1.0", "CLUSTAL W", "#A3M#", "#=GC RF xx", "#8,4\t1,1", ">ss_pred", ";", "\0", " *:."]
    ),
)
texts = st.builds(
    lambda lines, end: end.join(lines).encode(), st.lists(line, max_size=12), st.sampled_from(["\n", "\r\n", "\r"])
)


@st.composite
def damaged_cases(draw):
    """A good file with a few bytes changed, cut out or put in."""
    data = bytearray(draw(st.sampled_from(CASES)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 3))
        data[place : place + length] = draw(st.binary(max_size=3) | st.sampled_from([b"\n", b">", b"\0", b"*", b" "]))
    return bytes(data)


compressed = st.builds(
    lambda compress, data, cut: compress(data)[: cut or None],
    st.sampled_from([gzip.compress, lzma.compress, bz2.compress]),
    texts,
    st.integers(-30, 0),
)


@fuzz
@given(st.one_of(st.binary(max_size=200), texts, damaged_cases(), compressed), options)
def test_anything_is_an_alignment_or_an_alignment_error(data, options):
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", AlignmentWarning)
        try:
            alignment = read_alignment(data, **options)
            message = ""
        except AlignmentError as error:
            message = str(error)
    assert time.process_time() - start < SECONDS
    assert "\n" not in message
    if message:
        return
    assert 1 <= alignment.N_seq <= options.get("max_seqs", 10**6)
    assert alignment.N_res >= 1
    assert alignment.msa.dtype == np.uint8
    assert alignment.msa.max() <= 21
    assert alignment.msa[0].max() <= 20  # no gap is left in the query
    assert alignment.deletions.min() >= 0
    assert len(alignment.ids) == len(alignment.descriptions) == alignment.N_seq


@fuzz
@given(texts, options)
def test_text_and_bytes_are_read_alike(data, options):
    def outcome(source):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AlignmentWarning)
            try:
                return read_alignment(source, **options)
            except AlignmentError as error:
                return str(error)

    assert outcome(data + b"\n") == outcome((data + b"\n").decode())


@fuzz
@given(st.one_of(texts, damaged_cases()), st.sampled_from(FORMATS))
def test_the_first_rows_are_those_of_all(data, format):
    """Unless not all of the file can be read, or only its later rows have the lower-case letters that say A3M."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AlignmentWarning)
        try:
            everything = read_alignment(data, format=format, index=0)
        except AlignmentError:
            return
        if format == "auto" and everything.metadata["format"] == "a3m":
            format = "a3m"
        assert read_alignment(data, format=format, max_seqs=2, index=0) == everything[:2]


@pytest.mark.parametrize(
    "character", [b">", b"#", b"\n", b" ", b"\0", b"A", b"a", b"-", b"//\n", b"A B\n", b">\n", b"*"]
)
def test_much_of_one_thing_takes_little_time(character):
    data = character * (200_000 // len(character))
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AlignmentWarning)
        for format in FORMATS:
            message = ""
            try:
                read_alignment(data, format=format)
            except AlignmentError as error:
                message = str(error)
            assert len(message) < 1000
    assert time.process_time() - start < 5
