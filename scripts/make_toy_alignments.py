"""Make the toy families that the examples train on, or check that those on disk are intact."""

from pathlib import Path

from evoformer.errors import ArgumentParser, errors_in_one_line
from evoformer.simulate.dataset import verify_toy_families, write_toy_families


def main() -> None:
    """Parse the command line and run it."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("data/toy"), help="folder of the families (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="decides every family (%(default)s)")
    parser.add_argument("--check", action="store_true", help="make nothing: compare the files with SHA256SUMS")
    arguments = parser.parse_args()
    if arguments.check:
        print(verify_toy_families(arguments.out))
    else:
        print(write_toy_families(arguments.out, seed=arguments.seed))


if __name__ == "__main__":
    with errors_in_one_line():
        main()
