"""`import evoformer`: quick, light, and every public name documented."""

import subprocess
import sys

import evoformer


def test_importing_the_library_loads_nothing_heavy_and_draws_no_random_number() -> None:
    heavy = ["pytorch_lightning", "lightning", "Bio", "matplotlib", "tensorboard", "jsonargparse", "safetensors"]
    program = f"""
import sys, torch
before = torch.random.get_rng_state()
import evoformer
print([name for name in {heavy} if name in sys.modules], torch.equal(before, torch.random.get_rng_state()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True"
    assert done.stderr == ""


def test_every_public_name_is_there_and_documented() -> None:
    assert list(evoformer.__all__) == sorted(set(evoformer.__all__))
    for name in evoformer.__all__:
        thing = getattr(evoformer, name)
        assert thing.__module__.startswith("evoformer.")
        assert thing.__dict__.get("__doc__") if isinstance(thing, type) else thing.__doc__, name
