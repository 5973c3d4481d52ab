"""Weights from one library's layout to another's: `python scripts/convert_weights.py SOURCE OUT --layout openfold`."""

from pathlib import Path
from typing import get_args

from evoformer.errors import ArgumentParser, errors_in_one_line
from evoformer.weights.convert import convert_weights
from evoformer.weights.names import Layout


def main() -> None:
    """Read the command line and convert."""
    parser = ArgumentParser(
        description="Read the trunk's weights of AlphaFold, OpenFold, alphafold-decoded or this library (the layout is "
        "recognised), and write them in another layout."
    )
    parser.add_argument("source", type=Path, metavar="SOURCE", help=".npz, PyTorch or safetensors file")
    parser.add_argument("out", type=Path, metavar="OUT", help="file to write; NAME.safetensors makes it one")
    parser.add_argument(
        "--layout", choices=get_args(Layout), default="openfold", help="whose names (default: %(default)s)"
    )
    arguments = parser.parse_args()
    print(convert_weights(**vars(arguments)))


if __name__ == "__main__":
    with errors_in_one_line():
        main()
