"""The Triton kernel: its numbers in the interpreter, that it compiles for a GPU, and what it refuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from evoformer import MultiHeadAttention
from evoformer.execution import Execution, set_execution
from evoformer.kernels import KernelError, kernels_used, triton_attention

HERE = Path(__file__).parent


def python(*arguments: str | Path, **environment: str) -> None:
    """A process in which nothing has imported Triton yet."""
    inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, *arguments], env={**inherited, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_agrees_with_the_reference_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    tests = HERE / "interpreted_triton.py"
    python("-m", "pytest", "-q", "-p", "no:cacheprovider", tests, TRITON_INTERPRET="1")


def test_every_program_compiles_for_a_gpu(tmp_path: Path) -> None:
    """In bfloat16, which the interpreter does not know, and one in float32; no GPU is needed for it."""
    pytest.importorskip("triton")
    python(HERE / "compiled_triton.py", TRITON_CACHE_DIR=str(tmp_path))


def layer(c: int = 8) -> MultiHeadAttention:
    mha = MultiHeadAttention(6, c, 2, attn_dim=-2, gated=True)
    set_execution(mha, Execution(kernel={"attention": "triton"}))
    return mha


def test_refuses_what_it_cannot_serve_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    x = torch.randn(2, 3, 6)
    with pytest.raises(KernelError, match="runs on CUDA, and x is on cpu"):
        layer()(x)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(KernelError, match="head width is 12, and it knows 8, 16, 32, 64"):
        layer(12)(x)
    with pytest.raises(KernelError, match=r"runs in torch\.float64"):
        layer().double()(x.double())
    with pytest.raises(KernelError, match="no forward-mode derivative"):
        torch.func.jvp(layer(), (x,), (x,))


def test_says_that_triton_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(KernelError, match="the package triton is not installed"):
        layer()(torch.randn(2, 3, 6))


def test_is_taken_only_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_attention, "refuses", lambda *operands: None)
    mha = layer()
    set_execution(mha, Execution())
    with kernels_used() as used:
        mha(torch.randn(2, 3, 6))
    assert not used["attention", "triton"]
