"""A checkpoint of the official size, 48 main and 4 extra blocks: it loads in seconds, and not into memory first."""

import subprocess
import sys

import numpy as np
import pytest

from evoformer import EvoformerBlock, ExtraMSABlock
from evoformer.weights import alphafold

ROOM = 128  # MiB; the file has 346

# Memory of the process's own is limited to what it has and some room; maps of the file do not count.
PROGRAM = f"""
import resource, sys, time
from torch import nn
for name in ("trunc_normal_", "xavier_uniform_", "normal_"):
    setattr(nn.init, name, lambda tensor, *args, **kwargs: tensor.fill_(0.01))
from evoformer import EvoformerStack, ExtraMSAStack, load_weights

model = nn.ModuleDict({{"evoformer": EvoformerStack(256, 128, 48), "extra_msa_stack": ExtraMSAStack(64, 128, 4)}})
with open("/proc/self/status") as status:
    kilobytes = next(int(line.split()[1]) for line in status if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (kilobytes * 1024 + {ROOM} * 2**20,) * 2)
before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
report = load_weights(model, sys.argv[1])
seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(len(report.loaded), len(report.all_zero), len(report.unused))
print(f"{{seconds:.1f}} s, peak {{before / 1024:.0f}} -> {{after / 1024:.0f}} MiB, the mapped file included")
"""


def stacked(block, n_block, scope):
    """Random arrays of a stack, from the shapes of one block."""
    generator = np.random.default_rng(0)
    state = block.state_dict()
    heads = alphafold.heads_in(state)
    one = alphafold.from_ours(state, heads, fused=False)
    return {
        f"{alphafold.ROOT}evoformer/{scope}/{name}": generator.random((n_block, *array.shape), np.float32)
        for name, array in one.items()
    }


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does it")
def test_a_full_size_checkpoint_loads_without_a_copy_in_memory(tmp_path):
    arrays = stacked(EvoformerBlock(), 48, "evoformer_iteration") | stacked(ExtraMSABlock(), 4, "extra_msa_stack")
    single = f"{alphafold.ROOT}evoformer/single_activations"
    arrays |= {f"{single}//weights": np.ones((256, 384), np.float32), f"{single}//bias": np.zeros(384, np.float32)}
    np.savez(tmp_path / "params.npz", **arrays)
    assert (tmp_path / "params.npz").stat().st_size > 2 * ROOM * 2**20
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "params.npz")], capture_output=True, text=True, check=False
    )
    (tmp_path / "params.npz").unlink()
    assert done.returncode == 0, done.stderr
    counts, figures = done.stdout.splitlines()
    assert counts == f"{48 * 93 + 4 * 93 + 2} 1 0"
    print(figures)
