"""Low precision: bfloat16, float16 and autocast stay finite whatever is masked, and near float32 with the same weights.

The error is that of a block's update, output minus input, in the Frobenius norm: `docs/parity.md` states it.
"""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from evoformer import EvoformerBlock, ExtraMSABlock
from evoformer.kernels import streaming

N_seq, N_res, c_m, c_z = 1024, 5, 16, 12
SMALL = {"c_msa_att": 8, "N_head_msa": 2, "c_opm": 6, "c_tri_mul": 10, "c_tri_att": 5, "N_head_tri": 4}
FORMS: dict[str, Callable[[], nn.Module]] = {
    "main": lambda: EvoformerBlock(c_m, c_z, **SMALL),
    "outer product first": lambda: EvoformerBlock(c_m, c_z, opm_first=True, **SMALL),
    "centred": lambda: EvoformerBlock(c_m, c_z, opm_centered=True, **SMALL),
    "no triangle attention": lambda: EvoformerBlock(c_m, c_z, **{**SMALL, "N_head_tri": 0}),
    "extra": lambda: ExtraMSABlock(c_m, c_z, **SMALL),
    "extra, outer product first": lambda: ExtraMSABlock(c_m, c_z, opm_first=True, **SMALL),
}
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 2.5e-3}

Tensors = tuple[Tensor, Tensor]


@pytest.fixture(autouse=True, params=["reference", "streamed"])
def _kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What "auto" takes, since everything is small or nothing is."""
    monkeypatch.setattr(streaming, "SMALL", 0 if request.param == "streamed" else math.inf)


def drawn(block: nn.Module) -> nn.Module:
    """The block with weights as large as its updates need to be of the size of its inputs; none is zero."""
    for name, parameter in block.named_parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
        else:
            is_scale = "layer_norm" in name and name.endswith("weight")
            nn.init.normal_(parameter, mean=1.0 if is_scale else 0.0, std=0.3)
    return block.eval()


def masks(hidden: str, dtype: torch.dtype) -> Tensors:
    """Numbers of the precision itself, in which bfloat16 cannot count to N_seq."""
    msa_mask, pair_mask = (torch.rand(N_seq, N_res) > 0.2).float(), torch.ones(N_res, N_res)
    if hidden == "cells, rows and a residue":
        msa_mask[0] = 1
        msa_mask[N_seq // 2 :] = 0
        msa_mask[:, 2] = 0
        pair_mask[2] = pair_mask[:, 2] = 0
    if hidden == "everything":
        msa_mask, pair_mask = 0 * msa_mask, 0 * pair_mask
    return msa_mask.to(dtype), pair_mask.to(dtype)


def problem(form: str, hidden: str, dtype: torch.dtype) -> tuple[nn.Module, Tensors, Tensors]:
    """A block, its inputs and their masks, all numbers rounded to a precision."""
    block = drawn(FORMS[form]()).to(dtype)
    inputs = torch.randn(N_seq, N_res, c_m, dtype=dtype), torch.randn(N_res, N_res, c_z, dtype=dtype)
    return block, inputs, masks(hidden, dtype)


def updates(outputs: Tensors, inputs: Tensors) -> Tensors:
    """Output minus input, the difference taken in float32."""
    return tuple(output.float() - x.float() for output, x in zip(outputs, inputs, strict=True))


def error(x: Tensor, expected: Tensor) -> float:
    return ((x - expected).norm() / expected.norm()).item()


def assert_near(ours: Tensors, expected: Tensors, masks: Tensors, tolerance: float) -> None:
    """Everywhere, and where nothing is masked: pairs that share no row hold large numbers, which would cover others."""
    for name, x, y, mask in zip("mz", ours, expected, masks, strict=True):
        assert x.isfinite().all()
        worst = error(x, y)
        if mask.any():
            worst = max(worst, error(x[mask == 1], y[mask == 1]))
        print(f"error of the update of {name}: {worst:.1e}")
        assert worst <= tolerance, name


FORM = pytest.mark.parametrize("form", FORMS)
HIDDEN = pytest.mark.parametrize("hidden", ["cells", "cells, rows and a residue", "everything"])


@FORM
@HIDDEN
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@torch.no_grad()
def test_weights_of_low_precision_are_near_float32(form: str, dtype: torch.dtype, hidden: str) -> None:
    block, inputs, masks = problem(form, hidden, dtype)
    outputs = block(*inputs, *masks)
    assert all(x.dtype == dtype for x in outputs)
    exact = copy.deepcopy(block).float()(*(x.float() for x in (*inputs, *masks)))
    assert_near(updates(outputs, inputs), updates(exact, inputs), masks, TOLERANCE[dtype])


@FORM
@HIDDEN
@torch.no_grad()
def test_autocast_is_near_float32(form: str, hidden: str) -> None:
    block, inputs, masks = problem(form, hidden, torch.float32)
    exact = block(*inputs, *masks)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = block(*inputs, *masks)
    assert_near(updates(outputs, inputs), updates(exact, inputs), masks, TOLERANCE[torch.bfloat16])


@pytest.mark.parametrize("form", ["main", "extra, outer product first"])
@HIDDEN
@pytest.mark.parametrize("autocast", [False, True])
def test_gradients_in_bfloat16_are_finite(form: str, hidden: str, autocast: bool) -> None:
    block, inputs, masks = problem(form, hidden, torch.float32 if autocast else torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        outputs = block(*(x.requires_grad_() for x in inputs), *masks)
    sum(x.float().mean() for x in outputs).backward()
    assert all(x.grad.isfinite().all() for x in (*inputs, *block.parameters()))
