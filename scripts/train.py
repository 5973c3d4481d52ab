"""Train a trunk on alignments and show what it has learned: `python scripts/train.py fit --config configs/toy.yaml`."""

from evoformer.errors import errors_in_one_line
from evoformer.training.cli import main

if __name__ == "__main__":
    with errors_in_one_line():
        main()
