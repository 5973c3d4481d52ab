"""CPU time and memory of `read_alignment` for A3M, beside a plain loop over the characters in the same run."""

import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evoformer.constants import MSA_ALPHABET
from evoformer.errors import ArgumentParser, errors_in_one_line
from evoformer.features.reading import read_alignment


def main() -> None:
    """Write an alignment of random rows, read it both ways, and print CPU seconds and memory."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000, help="N_seq (%(default)s)")
    parser.add_argument("--columns", type=int, default=500, help="N_res (%(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.a3m"
        path.write_bytes(random_a3m(arguments.rows, arguments.columns))
        size = path.stat().st_size
        reader = cpu_seconds(lambda: read_alignment(path))
        loop = cpu_seconds(lambda: plain_loop(path))
        tracemalloc.start()
        read_alignment(path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    print(f"A3M of {arguments.rows:,} rows and {arguments.columns:,} columns, {size / 1e6:.1f} MB")
    print(f"read_alignment  {reader:.3f} s of CPU, peak {peak / size:.2f} times the file")
    print(f"plain loop      {loop:.3f} s of CPU, {loop / reader:.0f} times as long, without any check")


def random_a3m(N_seq: int, N_res: int) -> bytes:
    """Rows of random residues and gaps with an insertion in each."""
    rows = np.random.default_rng(0).choice(np.frombuffer(b"ACDEFGHIKLMNPQRSTVWY-----", np.uint8), (N_seq, N_res))
    rows[0] = ord("A")
    half = N_res // 2
    return b"".join(
        b">hit%d\n%bacd%b\n" % (i, row[:half].tobytes(), row[half:].tobytes()) for i, row in enumerate(rows)
    )


def plain_loop(path: Path) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Letter numbers and deletions as arrays, character by character."""
    number = {letter: i for i, letter in enumerate(MSA_ALPHABET)}
    msa, deletions = [], []
    for line in path.read_text().splitlines():
        if line.startswith(">"):
            continue
        letters, counts, inserted = [], [], 0
        for character in line:
            if character.islower():
                inserted += 1
            else:
                letters.append(number[character])
                counts.append(inserted)
                inserted = 0
        msa.append(letters)
        deletions.append(counts)
    return np.array(msa, np.int32), np.array(deletions, np.int32)


def cpu_seconds(read: Callable[[], object]) -> float:
    """The shortest of three runs."""
    seconds = []
    for _ in range(3):
        start = time.process_time()
        read()
        seconds.append(time.process_time() - start)
    return min(seconds)


if __name__ == "__main__":
    with errors_in_one_line():
        main()
