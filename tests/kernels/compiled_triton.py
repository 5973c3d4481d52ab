"""Compile the programs of the Triton kernel for compute capability 9.0; run by `test_triton_attention.py`."""

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from evoformer.kernels import triton_programs

PROGRAMS = (
    triton_programs._forward,
    triton_programs._backward_q,
    triton_programs._backward_kv,
    triton_programs._backward_bias,
)
TYPES = {"MASK": "*u8", "LSE": "*fp32", "DELTA": "*fp32", "BIAS_GRAD": "*fp32", "scale": "fp32"}
TYPES |= dict.fromkeys(("N", "N_head", "bias_rows"), "i32")


def compiled(program: triton.JITFunction, dtype: torch.dtype, name: str, c: int) -> None:
    constants = triton_programs._constants(torch.empty(1, 100, 1, c, dtype=dtype))
    options = {option: constants.pop(option) for option in ("num_warps", "num_stages")}
    signature = {x: "constexpr" if x in constants else TYPES.get(x, f"*{name}") for x in program.arg_names}
    source = ASTSource(program, signature, {(program.arg_names.index(x),): value for x, value in constants.items()})
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


for program in PROGRAMS:
    compiled(program, torch.bfloat16, "bf16", 8)
compiled(triton_programs._backward_kv, torch.float32, "fp32", 32)
