"""Predict the contacts of alignments: `python scripts/predict.py ALIGNMENT... --checkpoint CKPT --out DIR`."""

from pathlib import Path

from evoformer.errors import ArgumentParser, errors_in_one_line
from evoformer.predict import predict_files


def main() -> None:
    """Read the command line and predict."""
    parser = ArgumentParser(description="Predict the contacts of alignments with a trained trunk.")
    parser.add_argument("alignments", nargs="+", type=Path, metavar="ALIGNMENT", help="any readable alignment")
    parser.add_argument("--checkpoint", type=Path, required=True, help="what training has written, such as last.ckpt")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the results")
    parser.add_argument(
        "--structure",
        action="append",
        metavar="FILE[:CHAIN]",
        help="PDB or mmCIF file of the query, to compare with; once for each alignment, in their order",
    )
    parser.add_argument("--max-seqs", type=int, default=128, metavar="N", help="rows to use (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="decides which rows are used (default: %(default)s)")
    parser.add_argument("--dca", action="store_true", help="show mean-field DCA of the whole alignment beside it")
    arguments = parser.parse_args()
    predict_files(**vars(arguments))


if __name__ == "__main__":
    with errors_in_one_line():
        main()
