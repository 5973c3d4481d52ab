"""An alignment to another format, `python scripts/convert_alignment.py IN OUT`, or what is in it, `... inspect IN`."""

from pathlib import Path

from evoformer.errors import ArgumentParser, errors_in_one_line
from evoformer.features.converting import convert_alignment, inspect_alignment


def main() -> None:
    """Parse the command line and run it."""
    parser = ArgumentParser(
        usage="%(prog)s [options] IN OUT\n       %(prog)s [options] inspect IN",
        description="Convert an alignment between A3M, FASTA, Stockholm and Clustal, compressed or not; or print rows, "
        "columns, Neff, gaps and the oddities found. (A file named inspect is ./inspect.)",
    )
    parser.add_argument("first", metavar="IN", help="alignment to read, in any format the reader knows; or: inspect")
    parser.add_argument("second", metavar="OUT", help="file to write; its suffix says the format. After inspect: IN")
    parser.add_argument("--format", default="auto", help="of IN, where its content does not say it (%(default)s)")
    parser.add_argument(
        "--out-format", help="of OUT: a3m, fasta, stockholm or clustal, where the suffix does not say it"
    )
    parser.add_argument("--index", type=int, help="which of several alignments in IN, from 0")
    parser.add_argument("--max-seqs", type=int, help="rows to read, the query included")
    parser.add_argument("--query", help="sequence, without gaps, of the row to make the query")
    parser.add_argument("--uppercase", action="store_true", help="read the lower-case letters of A3M as columns")
    parser.add_argument("--strict", action="store_true", help="make an error of what would be a warning")
    options = vars(parser.parse_args())
    first, second, out_format = options.pop("first"), options.pop("second"), options.pop("out_format")
    if first == "inspect":
        print(inspect_alignment(Path(second), **options))
    else:
        print(convert_alignment(Path(first), Path(second), out_format=out_format, **options))


if __name__ == "__main__":
    with errors_in_one_line():
        main()
