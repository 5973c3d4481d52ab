"""How fast the featurizer is: clusters beside the way of one-hot matrices, and a whole featurization.

    OMP_NUM_THREADS=1 python scripts/benchmark_features.py

Times are of the processor, all threads together. The letters are random. Memory is what is allocated at the most beyond
the letters, which are given.
"""

import argparse
import time
import tracemalloc
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from evoformer.constants import GAP, N_MSA_TOKENS
from evoformer.features.alignment import Alignment
from evoformer.features.clustering import assign_to_clusters, summarize_clusters
from evoformer.features.featurizer import MSAFeaturizer
from evoformer.features.profile import one_hot

Clusters = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]  # assignment, profile, mean deletions
N_LETTERS = 22
N_REPEAT = 3


def cluster(msa: NDArray[np.uint8], extra_msa: NDArray[np.uint8], deletions: NDArray[np.float32]) -> Clusters:
    """Ours."""
    assignment = assign_to_clusters(msa, extra_msa)
    own = np.zeros(msa.shape, np.float32)
    return assignment, *summarize_clusters(msa, own, extra_msa, deletions, assignment)


def cluster_by_matrices(
    msa: NDArray[np.uint8], extra_msa: NDArray[np.uint8], deletions: NDArray[np.float32]
) -> Clusters:
    """As AlphaFold writes it: letters as one-hot vectors, counts and sums as products of matrices."""
    N_clust = len(msa)
    centre_letters, letters = one_hot(msa, N_MSA_TOKENS), one_hot(extra_msa, N_MSA_TOKENS)
    weights = (np.arange(N_MSA_TOKENS) < GAP).astype(np.float32)
    agreement = letters.reshape(len(letters), -1) @ (centre_letters * weights).reshape(N_clust, -1).T
    assignment = agreement.argmax(axis=1)
    members = one_hot(assignment, N_clust).T
    cells = 1 + np.float32(1e-6) + members.sum(axis=1)
    profile = centre_letters + (members @ letters.reshape(len(letters), -1)).reshape(centre_letters.shape)
    return assignment, profile / cells[:, None, None], members @ deletions / cells[:, None]


def seconds(run: Callable[[], object]) -> float:
    """CPU time, the least of a few runs."""
    times = []
    for _ in range(N_REPEAT):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def peak_bytes(run: Callable[[], object]) -> int:
    """The most that is allocated at one time; tracing takes time, so this run is not timed."""
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def benchmark_clusters(N_clust: int, N_extra: int, N_res: int) -> None:
    """Print time and memory of both ways, whose results must be the same."""
    generator = np.random.default_rng(0)
    msa = generator.integers(0, N_LETTERS, (N_clust, N_res), np.uint8)
    extra_msa = generator.integers(0, N_LETTERS, (N_extra, N_res), np.uint8)
    deletions = (generator.random(extra_msa.shape) < 0.02).astype(np.float32)
    ours, theirs = (way(msa, extra_msa, deletions) for way in (cluster, cluster_by_matrices))
    np.testing.assert_array_equal(ours[0], theirs[0])
    for one, other in zip(ours[1:], theirs[1:], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    del ours, theirs
    print(f"clusters, {N_clust} x {N_extra} x {N_res}:")
    times = {}
    for name, way in (("looked up in tiles", cluster), ("one-hot matrices", cluster_by_matrices)):
        run = partial(way, msa, extra_msa, deletions)
        times[name] = seconds(run)
        memory = peak_bytes(run)
        print(f"  {name:20} {times[name]:6.2f} s  {memory / 1e9:5.2f} GB")
    print(f"  {times['one-hot matrices'] / times['looked up in tiles']:.1f} times faster")


def benchmark_featurizer(N_seq: int, N_res: int, max_clusters: int, max_extra: int) -> None:
    """Print the time of one featurization."""
    generator = np.random.default_rng(1)
    letters = generator.integers(0, N_LETTERS, (N_seq, N_res), np.uint8)
    alignment = Alignment(letters, deletions=generator.random(letters.shape) < 0.02)
    featurizer = MSAFeaturizer(max_clusters, max_extra)
    taken = seconds(lambda: featurizer(alignment, seed=0))
    print(f"featurization, {N_seq} x {N_res} to {max_clusters} + {max_extra} rows: {taken:.2f} s")


def main() -> None:
    """Read the sizes and print the figures."""
    parser = argparse.ArgumentParser(description="Time the featurizer.")
    parser.add_argument("--extra", type=int, default=20_000, help="rows to cluster (default: %(default)s)")
    N_extra = parser.parse_args().extra
    torch.set_num_threads(1)
    benchmark_clusters(512, N_extra, 384)
    benchmark_featurizer(4000, 250, 512, 1024)


if __name__ == "__main__":
    main()
