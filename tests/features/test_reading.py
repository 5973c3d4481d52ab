"""read_alignment: every case of `cases/`, AlphaFold's own parsers, each format's rules, and what errors say."""

import bz2
import contextlib
import csv
import gzip
import io
import lzma
import re
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest

from evoformer.constants import AMBIGUOUS
from evoformer.constants import MSA_ALPHABET as ALPHABET
from evoformer.features.alignment import AlignmentError, AlignmentWarning
from evoformer.features.reading import read_alignment

CASES = Path(__file__).parents[1] / "cases"
GOLDEN = Path(__file__).parents[1] / "golden"
TABLE = list(csv.DictReader((CASES / "cases.tsv").read_text().splitlines(), delimiter="\t"))
BASIC = (CASES / "01_basic.a3m").read_bytes()

# What must be said in the error or the warning of a case.
SAID = {
    "16_nul_between_blocks.a3m": "2 alignments in one file, separated by NUL (12 and 6 columns); choose one",
    "17_stop_star_end.a3m": "trailing '*' removed from records 1 and 2",
    "19_unequal_match_columns.a3m": "record 3 'short_row' (line 6) has 11 match columns, expected 12",
    "20_empty_file.a3m": "no sequences in file",
    "21_header_only.a3m": "record 1 'query' has no residues",
    "24_lowercase_query.a3m": "query has no upper-case (match) letters",
    "26_query_with_gap.a3m": "query has a gap at column 5",
    "41_unaligned.fasta": "not an alignment, rows have 12, 11 and 14 columns",
    "45_no_terminator.sto": "missing '//' at the end",
    "48_duplicate_name_one_block.sto": "name 'hit' occurs twice in one block (lines 3 and 4)",
    "49_no_sequences.sto": "no sequences in file",
    "50_a3m_named_sto.sto": "content is FASTA/A3M, not Stockholm",
}


def read_quietly(source, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read_alignment(source, **options)


def rows_of(alignment):
    return [alignment.sequence(i) for i in range(alignment.N_seq)]


def deletions_of(alignment):
    deletions = alignment.deletions
    return ",".join(f"{i}:{j}={deletions[i, j]}" for i, j in np.argwhere(deletions)) or "none"


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case["file"])
def test_every_case_has_its_stated_outcome(case):
    path = CASES / case["file"]
    if case["outcome"] == "error":
        format = "stockholm" if case["file"].startswith("50") else "auto"
        with pytest.raises(AlignmentError, match=re.escape(SAID[case["file"]])) as caught:
            read_alignment(path, format=format)
        assert str(caught.value).startswith(str(path))
        assert caught.value.path == str(path)
        return
    if case["outcome"] == "ok+warning":
        with pytest.warns(AlignmentWarning, match=re.escape(SAID[case["file"]])) as caught:
            alignment = read_alignment(path)
        assert len(caught) == 1
        with pytest.raises(AlignmentError, match=re.escape(SAID[case["file"]])):
            read_alignment(path, strict=True)
    else:
        alignment = read_quietly(path)
    assert alignment.msa.shape == (int(case["n_seq"]), int(case["n_res"]))
    assert deletions_of(alignment) == case["deletions"]


def test_the_basic_case_letter_by_letter():
    alignment = read_quietly(CASES / "01_basic.a3m")
    assert alignment.ids == ["query", "hit_a", "hit_b"]
    assert rows_of(alignment) == ["MKTAYWQLNDEG", "MKSAYWQL-DEG", "-KTAYWQLNDEG"]


def test_an_a3m_query_gap_becomes_x():
    with pytest.warns(AlignmentWarning):
        assert read_alignment(CASES / "26_query_with_gap.a3m").query == "MKTAYXQLNDEG"


def test_nonstandard_letters_become_what_alphafold_makes_of_them():
    assert read_quietly(CASES / "35_nonstandard_letters.a3m").sequence(1) == "MCSADEQLXDXX"


def test_an_index_chooses_among_alignments_in_one_file():
    path = CASES / "16_nul_between_blocks.a3m"
    first, second = (read_quietly(path, index=i) for i in (0, 1))
    assert (first.msa.shape, deletions_of(first)) == ((3, 12), "2:6=2")
    assert (rows_of(second), deletions_of(second)) == (["GGSAYV", "GGSAYL"], "none")
    with pytest.raises(AlignmentError, match=r"index=2 among the alignments 0 to 1"):
        read_alignment(path, index=2)
    stockholm = "# STOCKHOLM 1.0\na MKT\n//\n# STOCKHOLM 1.0\nb MKTA\nc M--A\n//\n"
    assert rows_of(read_quietly(stockholm, index=1)) == ["MKTA", "M--A"]
    with pytest.raises(AlignmentError, match=r"2 alignments in one file, separated by // \(3 and 4 columns\)"):
        read_alignment(stockholm)


def test_upper_case_can_be_asked_for():
    alignment = read_quietly(CASES / "24_lowercase_query.a3m", uppercase=True)
    assert (alignment.msa.shape, deletions_of(alignment)) == ((2, 12), "none")


def test_a3m_content_decides_against_a_stockholm_suffix():
    alignment = read_quietly(CASES / "50_a3m_named_sto.sto")
    assert (alignment.msa.shape, deletions_of(alignment)) == ((3, 12), "2:6=2")


def test_headers_with_tabs_and_without_names():
    alignment = read_quietly(CASES / "29_tabs_in_headers.a3m")
    assert alignment.ids == ["query", "Q9XYZ1", "hit_b", "sequence_3"]
    assert alignment.descriptions[1] == "Q9XYZ1\t341\t0.334\t1.2E-20\t0\t11\t12"
    assert alignment.descriptions[2] == "hit_b   leading space"


def test_colabfold_headers_tell_the_chains():
    one = read_quietly(CASES / "10_colabfold_mono_header.a3m")
    assert (one.metadata["chain_lengths"], one.metadata["copies"]) == ([12], [1])
    two = read_quietly(CASES / "11_colabfold_complex.a3m")
    assert (two.metadata["chain_lengths"], two.metadata["copies"]) == ([8, 4], [1, 1])
    assert two.metadata["row_coverage"].tolist() == 2 * [[True, True]] + 2 * [[True, False]] + 2 * [[False, True]]
    assert two.ids[:3] == ["101\t102", "UniRef100_P1\tUniRef100_P2", "101"]


def test_colabfold_pairs_keep_both_ids_also_with_search_statistics():
    numbers = "\t213\t0.98\t1E-5\t0\t1\t2\t1\t2\t9"
    text = f"#2,1\t1,2\n>101\t102\nMKT\n>A{numbers}\tB{numbers}\nMKT\n>C{numbers}\nMK-\n"
    alignment = read_quietly(text)  # without a suffix or a lower-case letter: the header says A3M
    assert alignment.ids == ["101\t102", "A\tB", "C"]
    assert alignment.metadata["copies"] == [1, 2]
    with pytest.raises(AlignmentError, match=r"chains of 2\+2 residues, but the query has 3"):
        read_alignment(text.replace("#2,1", "#2,2"))
    with pytest.raises(AlignmentError, match=r"chains of 3\+0 residues, but the query has 3"):
        read_alignment(text.replace("#2,1", "#3,0"))


def numbers_of(golden):
    return ["".join(AMBIGUOUS.get(letter, letter) for letter in row) for row in golden["output/sequences"]]


@pytest.mark.parametrize(
    ("file", "golden"), [("alignment_a.a3m", "parse_a3m"), ("alignment_b.sto", "parse_sto")], ids=["a3m", "stockholm"]
)
def test_letters_and_deletions_are_alphafolds(file, golden):
    expected = np.load(GOLDEN / f"{golden}.npz")
    alignment = read_quietly(GOLDEN / file)
    assert rows_of(alignment) == numbers_of(expected)
    np.testing.assert_array_equal(alignment.deletions, expected["output/deletion_matrix"])


@pytest.mark.parametrize(
    ("file", "golden"), [("alignment_a.a3m", "parse_a3m"), ("alignment_b.sto", "parse_sto")], ids=["a3m", "stockholm"]
)
def test_the_letters_of_the_file_are_kept(file, golden):
    expected = np.load(GOLDEN / f"{golden}.npz")["output/sequences"]
    assert [row.tobytes().decode() for row in read_quietly(GOLDEN / file).letters] == list(expected)


@pytest.mark.parametrize("inputs", ["a3m", "sto", "a3m_then_sto", "sto_then_a3m"])
def test_rows_of_several_databases_without_duplicates_are_alphafolds(inputs):
    expected = np.load(GOLDEN / f"msa_features__{inputs}.npz")
    files = {"a3m": "alignment_a.a3m", "sto": "alignment_b.sto"}
    first, *others = (read_quietly(GOLDEN / files[name]) for name in inputs.split("_then_"))
    alignment = first.concatenate(*others).deduplicate()
    np.testing.assert_array_equal(alignment.msa, expected["output/msa"])
    np.testing.assert_array_equal(alignment.deletions, expected["output/deletion_matrix_int"])
    np.testing.assert_array_equal(alignment.aatype, expected["output/aatype"])
    assert alignment.letters[0].tobytes().decode() == str(expected["meta/query"])


@pytest.mark.parametrize("text", [">q\nBJOUZx\n>h\nDXXCEb\n", "BJOUZ\n-JOUZ\n"])
def test_ambiguous_letters_of_the_query_are_x_in_aatype_alone(text):
    alignment = read_quietly(text)
    assert alignment.query == "DXXCE"
    assert alignment.aatype.tolist() == [20] * 5
    assert alignment.letters[0].tobytes() == b"BJOUZ"


def test_stockholm_and_alphafolds_conversion_of_it_to_a3m_are_the_same():
    stockholm, a3m = read_quietly(GOLDEN / "alignment_b.sto"), read_quietly(GOLDEN / "alignment_b_as.a3m")
    assert rows_of(stockholm) == rows_of(a3m)
    np.testing.assert_array_equal(stockholm.deletions, a3m.deletions)
    assert stockholm.ids == a3m.ids
    assert stockholm.descriptions == a3m.descriptions


def slow_a3m(rows):
    """Letters and deletions of A3M rows, character by character."""
    sequences, deletions = [], []
    for row in rows:
        sequence, counts, waiting = "", [], 0
        for letter in row:
            if letter.islower():
                waiting += 1
            else:
                sequence, counts, waiting = sequence + letter, [*counts, waiting], 0
        sequences.append(sequence)
        deletions.append(counts)
    return sequences, deletions


def slow_aligned(rows):
    """Letters and deletions of aligned rows, after making A3M of them."""
    a3m = []
    for row in rows:
        columns = zip(rows[0], row, strict=True)
        a3m.append("".join(b if a != "-" else b.lower().replace("-", "") for a, b in columns))
    return slow_a3m(a3m)


@pytest.mark.parametrize("seed", range(5))
def test_random_a3m_is_read_as_a_slow_parser_reads_it(seed):
    rng = np.random.default_rng(seed)
    N_seq, N_res = 11, 17
    rows = []
    for i in range(N_seq):
        letters = rng.choice(list("ACDEFGHIKLMNPQRSTVWY" if i == 0 else "ACDEFGHIKLMNPQRSTVWY------"), N_res)
        inserts = ["".join(rng.choice(list("acdefy"), rng.choice([0, 0, 1, 4]))) for _ in range(N_res + 1)]
        rows.append("".join(a + b for a, b in zip(inserts, [*letters, ""], strict=True)))
    text = "".join(f">{i}\n{row[:7]}\n{row[7:]}\n" for i, row in enumerate(rows))
    alignment = read_quietly(text, format="a3m")
    assert (rows_of(alignment), alignment.deletions.tolist()) == slow_a3m(rows)


@pytest.mark.parametrize("seed", range(5))
def test_random_aligned_rows_are_the_same_in_every_aligned_format(seed):
    rng = np.random.default_rng(seed)
    rows = ["".join(row) for row in rng.choice(list("ACDEFGHIKLMNPQRSTVWY---------"), (6, 23))]
    expected = slow_aligned(rows)
    names = [f"name{i}" for i in range(len(rows))]
    half = [[row[:13] for row in rows], [row[13:] for row in rows]]
    blocks = ["".join(f"{name}  {row}\n" for name, row in zip(names, part, strict=True)) for part in half]
    texts = {
        "fasta": "".join(f">{name}\n{row}\n" for name, row in zip(names, rows, strict=True)),
        "stockholm": "# STOCKHOLM 1.0\n\n" + "\n".join(blocks) + "//\n",
        "clustal": "CLUSTAL W\n\n\n" + "\n".join(blocks),
        "plain": "\n".join(rows) + "\n",
    }
    for format, text in texts.items():
        alignment = read_quietly(text)
        assert alignment.metadata["format"] == format
        assert (rows_of(alignment), alignment.deletions.tolist()) == expected
        assert format == "plain" or alignment.ids == names


@pytest.mark.parametrize("file", ["43_jackhmmer_style.sto", "44_pfam_dots_lowercase.sto", "51_clustal_consensus.aln"])
def test_blocks_are_joined_as_biopython_joins_them(file):
    from Bio import AlignIO

    expected = AlignIO.read(CASES / file, "stockholm" if file.endswith(".sto") else "clustal")
    kept = [i for i, letter in enumerate(expected[0].seq) if letter != "-"]
    alignment = read_quietly(CASES / file)
    assert alignment.ids == [record.id for record in expected]
    assert rows_of(alignment) == ["".join(record.seq[i] for i in kept).upper() for record in expected]


def test_every_kind_of_source_gives_the_same_alignment(tmp_path):
    path = tmp_path / "basic.a3m"
    path.write_bytes(BASIC)
    text = BASIC.decode()
    with path.open("rb") as binary, path.open() as characters:
        sources = [path, str(path), binary, characters, io.BytesIO(BASIC), io.StringIO(text)]
        sources += [BASIC, text, text.split("\n"), text.splitlines(keepends=True)]
        for source in sources:
            alignment = read_quietly(source)
            assert alignment.msa.shape == (3, 12)
            assert deletions_of(alignment) == "2:6=2"


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress])
def test_compression_is_recognised_by_content(compress, tmp_path):
    path = tmp_path / "without_suffix"
    path.write_bytes(compress(BASIC))
    assert deletions_of(read_quietly(path)) == "2:6=2"
    path.write_bytes(compress(BASIC)[:20])
    with pytest.raises(AlignmentError, match=r"without_suffix: damaged (gzip|xz|bzip2) data"):
        read_alignment(path)


@pytest.mark.parametrize(
    "name", ["a.fa", "a.fasta", "a.fas", "a.mfa", "a.FASTA", "a.fa.gz", "b.a3m", "b.a2m", "b.a3m.xz"]
)
def test_the_suffix_decides_between_a3m_and_fasta(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(b">query\nMKTa\n>hit\nMKT.\n" if name.startswith("a") else b">query\nMKTA\n>hit\nMK-A\n")
    alignment = read_quietly(path)
    assert alignment.metadata["format"] == ("fasta" if name.startswith("a") else "a3m")
    assert alignment.N_res == 4


def test_without_a_suffix_a_lower_case_letter_means_a3m():
    assert read_quietly(">q\nMKT\n>h\nMKaT\n").metadata["format"] == "a3m"
    assert read_quietly(">lower case header\nMKT\n>h\nM-T\n").metadata["format"] == "fasta"
    assert read_quietly("#A3M#\n>q\nMKT\n>h\nM-T\n").metadata["format"] == "a3m"


@pytest.mark.parametrize(
    "header",
    [
        "CLUSTAL",
        "CLUSTAL format alignment by MAFFT (v7.407)",
        "MUSCLE (3.8) multiple sequence alignment",
        "PROBCONS",
        "T-COFFEE, Version_11.00",
    ],
)
def test_clustal_of_any_program(header):
    text = f"{header}\n\nquery   MKT- 3\nhit     MK-A 3\n         *\n\nquery   AYW 6\nhit     ayw 6\n        *:.\n"
    alignment = read_quietly(text)
    assert (rows_of(alignment), deletions_of(alignment)) == (["MKTAYW", "MK-AYW"], "1:3=1")


@pytest.mark.parametrize(
    "text",
    [
        "# made by hand\nCLUSTAL W\n\nq MKTA\nh M-TA\n",
        "CLUSTAL W\nq MK\nh M-\n  *\nq TA\nh TA\n  **\n",  # the consensus line ends the block
        "CLUSTAL W\n\nq MKTA\nh M-TA\n* **\n",  # whose blanks at the left are lost
    ],
)
def test_clustal_with_comments_and_damaged_blanks(text):
    assert rows_of(read_quietly(text)) == ["MKTA", "M-TA"]


def test_stockholm_descriptions_are_the_de_lines():
    text = "# STOCKHOLM 1.0\n#=GS q AC P1\n#=GS q DE a protein\n#=GS q DE of note\nq MKT\nh MKT\n//\n"
    assert read_quietly(text).descriptions == ["q a protein of note", "h"]


def test_stockholm_without_its_header_is_read_with_a_warning():
    with pytest.warns(AlignmentWarning, match="missing '# STOCKHOLM 1.0' at the beginning"):
        assert rows_of(read_alignment("#=GF ID x\nq MKT\n//\n")) == ["MKT"]


def test_stockholm_alignments_without_a_row_do_not_count():
    assert rows_of(read_quietly("# STOCKHOLM 1.0\n//\n# STOCKHOLM 1.0\nq MKT\n//\n")) == ["MKT"]


def test_a_comment_may_precede_the_stockholm_header():
    assert rows_of(read_quietly("# made by hand\n# STOCKHOLM 1.0\nq MKT\n//\n")) == ["MKT"]


def test_comments_in_plain_rows():
    assert rows_of(read_quietly("; made by hand\nMKT\n# really\nM-T\n")) == ["MKT", "M-T"]


def test_lower_case_in_any_alignment_of_a_file_means_a3m():
    assert deletions_of(read_quietly(b">a\nMKT\n>b\nM-T\n\0>c\nAY\n>d\nAkY\n\0", index=1)) == "1:1=1"


@pytest.mark.parametrize("line", ["q{}MKT\n", "{}q MKT\n", "q MKT{}1 x\n"])
def test_many_blanks_take_little_time(line):
    text = "CLUSTAL W\n\n" + line.format(" " * 50_000)
    start = time.process_time()
    with contextlib.suppress(AlignmentError):
        read_alignment(text)
    assert time.process_time() - start < 1  # a quadratic search took half a minute


@pytest.mark.parametrize("header", [b">\xc2\xa0", b">\x1c", b"#3\t1\n>\x1f\t\x1f", b"#" + b"9" * 5000 + b"\t1\n>q"])
def test_odd_headers_are_read(header):
    assert rows_of(read_quietly(header + b"\nMKT\n>h\nMKT\n")) == ["MKT", "MKT"]


def test_text_with_bytes_that_were_no_utf_8_is_read():
    text = b">q caf\xe9\nMKT\n".decode("utf-8", "surrogateescape")
    for source in (text, text.split("\n"), io.StringIO(text)):
        assert rows_of(read_quietly(source)) == ["MKT"]


def test_rows_with_names_but_without_a_header_are_not_guessed_at():
    with pytest.raises(AlignmentError, match="line 1: 'query MKT' does not begin"):
        read_alignment("query MKT\nhit MKT\n")


def test_stockholm_that_biopython_refuses():
    text = "# STOCKHOLM 1.0\n#=GF CC\nquery\tMKT\nhit\tM.T\n#=GR hit SS\n#=GC RF xx\n//\n"
    assert rows_of(read_quietly(text)) == ["MKT", "M-T"]


@pytest.mark.parametrize("line_end", [b"\r", b"\r\n"])
def test_line_ends_of_other_systems(line_end):
    assert deletions_of(read_quietly(BASIC.replace(b"\n", line_end))) == "2:6=2"


def test_utf_16_is_read():
    assert deletions_of(read_quietly(BASIC.decode().encode("utf-16"))) == "2:6=2"


def test_comments_in_fasta():
    text = "; made by hand\n# really\n>q\nMKT\n; between\nAY\n>h\nMKTAY\n"
    assert rows_of(read_quietly(text)) == ["MKTAY", "MKTAY"]


def test_stars_are_removed_at_the_end_and_x_elsewhere():
    with pytest.warns(AlignmentWarning, match=r"trailing '\*' removed from record 2; '\*' read as X in record 3"):
        alignment = read_alignment(">q\nMKTA\n>a\nMKTAcc*\n>b\nM*TA\n")
    assert rows_of(alignment) == ["MKTA", "MKTA", "MXTA"]
    with pytest.warns(AlignmentWarning):
        assert rows_of(read_alignment(">q\nMKTA\n>a\nMKT*\n")) == ["MKTA", "MKT-"]


def test_unusual_gaps_are_read_with_a_warning():
    for text in (">q\nMKTA\n>a\nM~T_\n", ">q\nMKTA\n>a\nMcc~T_\n", "# STOCKHOLM 1.0\nq MKTA\na M~T_\n//\n"):
        with pytest.warns(AlignmentWarning, match="'_' and '~' read as gaps") as caught:
            assert rows_of(read_alignment(text)) == ["MKTA", "M-T-"]
        assert len(caught) == 1
        with pytest.raises(AlignmentError, match="'_' and '~' read as gaps"):
            read_alignment(text, strict=True)


@pytest.mark.parametrize(
    ("text", "record", "line", "column", "character"),
    [
        (">q\nMKT\n\n>h\nM\n K1\n", 2, 6, 3, "1"),
        (">q\nMKé\n", 1, 2, 3, "é"),
        (">q\nMaKT\n>h\nMKT?\n", 2, 4, 4, "?"),
        (">q\nMaKT;\n", 1, 2, 5, ";"),
        ("# STOCKHOLM 1.0\nq MKT\nq2  M9T\n//\n", 2, 3, 6, "9"),
        ("CLUSTAL\n\nq MKT\n\nq A@A\n", 1, 5, 4, "@"),
        ("# STOCKHOLM 1.0\né MKT\né2 M9T\n//\n", 2, 3, 5, "9"),
        ("MKT\nMK>\n", 2, 2, 3, ">"),
    ],
)
def test_a_bad_character_is_named_with_its_place(text, record, line, column, character):
    with pytest.raises(AlignmentError, match=f"line {line}, column {column}: {re.escape(repr(character))}") as caught:
        read_alignment(text)
    assert (caught.value.record, caught.value.line, caught.value.column) == (record, line, column)
    assert repr(caught.value.id) in str(caught.value)
    assert f"record {record}" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("nowhere.a3m", {}, "nowhere.a3m: no such file"),
        ("no\0where.a3m", {}, "cannot be read: embedded null"),
        (b"", {}, "no sequences in file"),
        ("# only a comment\n", {}, "no sequences in file"),
        ("CLUSTAL W\n\n", {}, "no sequences in file"),
        (">q\n---\n>h\nMKT\n", {}, "query has no residues, only gaps"),
        ("*\n**", {}, "query has no residues"),
        (">q\nMKT\n>h\n\n>g\nMKT\n", {}, r"record 2 'h' has no residues \(line 3\)"),
        ("MKT\n>q\nMKT\n", {}, "line 1: a row before the first header"),
        ("# STOCKHOLM 1.0\nq MKT\nh\n//\n", {}, "line 3: a name and a row are expected, not 'h'"),
        ("# STOCKHOLM 1.0\nq MKT\nh MKT\n\nq MKT\n//\n", {}, "rows have 6 and 3 columns; record 2 'h'"),
        ("<html>\n<body>\n", {}, "line 1: '<html>' does not begin A3M, FASTA"),
        (BASIC, {"format": "clustal"}, "content is FASTA/A3M, not Clustal"),
        ("# STOCKHOLM 1.0\nq MKT\n//\n", {"format": "a3m"}, "content is Stockholm, not FASTA/A3M"),
        (BASIC, {"format": "hmm"}, "unknown format 'hmm', known are auto, a3m"),
        (BASIC, {"query": "MKT"}, "no sequence equals the query of 3 residues; theirs are 12, 11 and 14 long"),
        (BASIC, {"max_seqs": 0}, "max_seqs must be at least 1, not 0"),
        (BASIC, {"index": 1}, "index=1 among the alignments 0 to 0"),
    ],
)
def test_errors_say_what_is_wrong(source, options, message):
    with pytest.raises(AlignmentError, match=message):
        read_alignment(source, **options)


def test_max_seqs_limits_the_rows_read():
    alignment = read_quietly(CASES / "55_forty_rows.a3m", max_seqs=5)
    assert alignment.N_seq == 5
    assert deletions_of(alignment) == "1:4=2"
    damaged = "#LUSTAL\nq\na MKT\nb M-T\nc MKT\n"  # it looks like plain rows
    assert read_quietly(damaged, format="clustal", max_seqs=2).ids == ["a", "b"]


class Counted(io.BytesIO):
    """An open file that counts what is read of it."""

    N_read = 0

    def read(self, size=-1):
        data = super().read(size)
        self.N_read += len(data)
        return data


MANY_ROWS = b"".join(b">%d\nMKTAYWQLNDEG\n" % i for i in range(100_000))


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress, bz2.compress])
def test_max_seqs_stops_reading(compress):
    rng = np.random.default_rng(0)
    rows = rng.choice(np.frombuffer(b"ACDEFGHIKLMNPQRSTVWY", np.uint8), (20_000, 100))
    data = compress(b"".join(b">%d\n%b\n" % (i, row.tobytes()) for i, row in enumerate(rows)))
    file = Counted(data)
    assert read_quietly(file, max_seqs=1000).ids == [str(i) for i in range(1000)]
    assert file.N_read < 0.75 * len(data) if compress is bz2.compress else file.N_read < 0.25 * len(data)
    whole = Counted(data)
    read_quietly(whole)
    assert whole.N_read == len(data)


@pytest.mark.parametrize("max_seqs", [1, 2, 3])
def test_errors_and_oddities_behind_max_seqs_do_not_matter(max_seqs, tmp_path):
    good, bad = ">a\nMKT\n>b\nM-T\n>c\nMKA\n", ">d\nM?T*\n>e\n>f\nMKTTTTTT\n\0>g\nMK\n"
    assert read_quietly(good + bad, max_seqs=max_seqs).ids == ["a", "b", "c"][:max_seqs]
    blocks = "a MKT\nb M-T\nc MKA\nd M?T*\nd MKT\ne\n"
    for header in ("# STOCKHOLM 1.0\n", "CLUSTAL W\n\n"):
        assert read_quietly(header + blocks + "//\n" * ("#" in header), max_seqs=max_seqs).N_seq == max_seqs
    assert read_quietly("MKT\nM-T\nMKA\nM?\nMKTTT\n", max_seqs=max_seqs).N_seq == max_seqs
    damaged = tmp_path / "cut.a3m.gz"
    damaged.write_bytes(gzip.compress(MANY_ROWS)[:-100])
    assert read_quietly(damaged, max_seqs=max_seqs).N_seq == max_seqs
    with pytest.raises(AlignmentError, match="damaged gzip"):
        read_alignment(damaged)


@pytest.mark.parametrize("text", [">a\nMKT\n>b\nMKT\n\0>c\nMK\n", "# STOCKHOLM 1.0\na MKT\n//\nb MK\n//\n"])
def test_max_seqs_chooses_no_alignment_among_several(text):
    with pytest.raises(AlignmentError, match="2 alignments in one file"):
        read_alignment(text, max_seqs=5)
    assert read_quietly(text, max_seqs=1, index=1).N_res == 2
    assert read_quietly(text, max_seqs=1, index=0).N_res == 3


@pytest.mark.parametrize("max_seqs", [1, 4, 39, 40, 41])
def test_max_seqs_takes_the_first_rows_of_every_format(max_seqs, tmp_path):
    alignment = read_quietly(CASES / "55_forty_rows.a3m")
    for suffix in (".a3m", ".fasta", ".sto", ".aln", ".a3m.gz", ".fasta.xz"):
        path = tmp_path / f"forty{suffix}"
        alignment.write(path)
        assert read_quietly(path, max_seqs=max_seqs) == alignment[:max_seqs]


def test_annotation_records_do_not_count_as_rows():
    assert read_quietly(CASES / "33_hhpred_ss_rows.a3m", max_seqs=2).N_seq == 2
    text = ">\tss_pred\nCCH\n> ss_conf\n987\n>q\nMKT\n>h\nMaKT\n>i\nMKT\n"  # found by fuzzing
    assert read_quietly(text, max_seqs=2, format="a3m").ids == ["q", "h"]


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("stockholm", "q MKTA\nh M-TA\n//\n"),
        ("stockholm", "STOCKHOLM 1.0\n\nq MKTA\nh M-TA\n//\n"),
        ("clustal", "q MKTA\nh M-TA\n"),
        ("clustal", "q MK\nh M-\n\nq TA\nh TA\n"),
        ("clustal", "q MK\n\nq TA\n"),
        ("clustal", "My own aligner, version 3\n\nq MKTA\nh M-TA\n"),
        ("clustal", "ALIGNER output\nq MKTA\nh M-TA\n"),
    ],
)
def test_a_format_asked_for_by_name_needs_no_usual_header(format, text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AlignmentWarning)
        alignment = read_alignment(text, format=format)
    assert rows_of(alignment) == ["MKTA", "M-TA"][: alignment.N_seq]
    assert alignment.metadata["format"] == format


def test_a_missing_clustal_header_is_an_oddity():
    with pytest.raises(AlignmentError, match="missing 'CLUSTAL' at the beginning") as caught:
        read_alignment("\nq MKTA\nh M-TA\n", format="clustal", strict=True)
    assert caught.value.line == 2


def test_errors_of_oddities_carry_their_place():
    for text, record, line in [(">q\nMKT\n>h\nM_T\n", 2, 4), (">q\nMKT\n>h\nMaKT*\n", 2, 4), (">q\nM-aKT\n", 1, 2)]:
        with pytest.raises(AlignmentError) as caught:
            read_alignment(text, format="a3m", strict=True)
        assert (caught.value.record, caught.value.line) == (record, line)
    with pytest.raises(AlignmentError) as caught:
        read_alignment("# STOCKHOLM 1.0\nq MKT\n", strict=True)
    assert caught.value.line == 3
    with pytest.raises(AlignmentError, match=r"the header \(line 2\) promises chains of 4 residues") as caught:
        read_alignment("\n#4\t1\n>q\nMKT\n")
    assert caught.value.line == 2


def test_a3m_read_as_fasta_is_pointed_to_its_format():
    hint = "without lower-case letters all rows have 3: format='a3m' reads those as insertions"
    with pytest.raises(AlignmentError, match=hint):
        read_alignment(">q\nMKT\n>h\nMKaT\n", format="fasta")
    with pytest.raises(AlignmentError) as caught:
        read_alignment(">q\nMKT\n>h\nMKAaT\n", format="fasta")
    assert "a3m" not in str(caught.value)


def test_another_row_can_be_the_query():
    alignment = read_quietly(">a\nMK-T\n>b\nM-AT\n>c\nMKAT\n", query="MAT", max_seqs=2)
    assert alignment.ids == ["b", "a"]
    assert (rows_of(alignment), deletions_of(alignment)) == (["MAT", "M-T"], "1:1=1")


def test_a_large_file_takes_less_than_four_times_its_size_in_memory(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.choice(np.frombuffer(b"ACDEFGHIKLMNPQRSTVWY-", np.uint8), (20_000, 500))
    rows[0] = ord("A")
    path = tmp_path / "large.a3m"
    path.write_bytes(
        b"".join(b">%d\n%bacd%b\n" % (i, row[:200].tobytes(), row[200:].tobytes()) for i, row in enumerate(rows))
    )
    tracemalloc.start()
    try:
        alignment = read_quietly(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * path.stat().st_size
    np.testing.assert_array_equal(
        alignment.msa[[1, -1]], [[ALPHABET.index(chr(a)) for a in row] for row in rows[[1, -1]]]
    )
    assert alignment.msa.shape == (20_000, 500)
    assert alignment.deletions.sum() == 3 * 20_000
    assert alignment.deletions[:, 200].tolist() == [3] * 20_000


def test_reading_is_ten_times_faster_than_a_loop_over_the_characters():
    rng = np.random.default_rng(0)
    rows = ["".join(row) for row in rng.choice(list("ACDEFGHIKLMNPQRSTVWY-"), (2000, 500))]
    rows = ["A" * 500, *(f"{row[:200]}acd{row[200:]}" for row in rows)]
    text = "".join(f">{i}\n{row}\n" for i, row in enumerate(rows))

    def seconds(read):
        start = time.process_time()
        read()
        return time.process_time() - start

    fast = min(seconds(lambda: read_quietly(text, format="a3m")) for _ in range(3))
    slow = min(seconds(lambda: [[*map(ALPHABET.find, row)] for row in slow_a3m(rows)[0]]) for _ in range(2))
    assert slow > 10 * fast
