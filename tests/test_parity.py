"""Parity: on DeepMind's own weights and inputs every module computes DeepMind's numbers, masked positions included.

The arrays in `golden/` come from AlphaFold 2.3.2's code with JAX in float32; `docs/parity.md` says more.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import golden_weights
import numpy as np
import pytest
import torch
from golden_weights import Parameters, State
from torch import Tensor, nn

from evoformer import (
    EvoformerBlock,
    EvoformerStack,
    ExtraMSABlock,
    ExtraMSAStack,
    MSAColumnAttention,
    MSAColumnGlobalAttention,
    MSARowAttentionWithPairBias,
    MSATransition,
    MultiHeadAttention,
    OuterProductMean,
    PairTransition,
    TriangleAttention,
    TriangleMultiplication,
    kernels_used,
    ops,
)
from evoformer.kernels import streaming

TESTS = Path(__file__).parent
TOLERANCE = 1e-5  # times the largest number of the output, or 1


@dataclass(frozen=True)
class Golden:
    """One file: parameters, inputs and outputs of one of DeepMind's modules."""

    parameters: Parameters
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    opm_first: bool


def read(name: str) -> Golden:
    with np.load(TESTS / "golden" / f"{name}.npz") as arrays:
        parts = {
            kind: {key.removeprefix(f"{kind}/"): arrays[key] for key in arrays if key.startswith(f"{kind}/")}
            for kind in ("param", "input", "output")
        }
        opm_first = '"first": true' in str(arrays["meta/config"])
    # The parameters of a module stand below its own name, which here is known.
    parameters = {key[key.index("/") + 1 :].removeprefix("/"): value for key, value in parts["param"].items()}
    inputs, outputs = ({key: torch.tensor(value) for key, value in parts[kind].items()} for kind in ("input", "output"))
    return Golden(parameters, inputs, outputs, opm_first)


def loaded(module: nn.Module, state: State, parameters: Parameters) -> nn.Module:
    """The module with all of DeepMind's parameters, in evaluation mode."""
    module.load_state_dict(state)
    assert sum(p.numel() for p in module.parameters()) == sum(value.size for value in parameters.values())
    return module.eval()


def heads(p: Parameters, scope: str = "attention//") -> tuple[int, int]:
    """Channels of a head and number of heads, in the order of our arguments."""
    _, N_head, c = p[f"{scope}query_w"].shape
    return c, N_head


def attention(golden: Golden) -> dict[str, Tensor]:
    p, x, mask = golden.parameters, golden.inputs["q_data"], golden.inputs["mask"]
    if not torch.equal(x, golden.inputs["m_data"]):
        return cross_attention(golden)
    layer = MultiHeadAttention(x.shape[-1], *heads(p, ""), attn_dim=-2, gated="gating_w" in p)
    loaded(layer, golden_weights.attention(p), p)
    return {"act": layer(x, golden.inputs.get("nonbatched_bias"), mask[:, 0, 0])}


def cross_attention(golden: Golden) -> dict[str, Tensor]:
    """Our layers attend to themselves; the operation beneath them takes any queries, keys and masks."""
    p = {name: torch.tensor(value) for name, value in golden.parameters.items()}
    x, y = golden.inputs["q_data"], golden.inputs["m_data"]
    q = torch.einsum("bqa,ahc->bhqc", x, p["query_w"])
    k = torch.einsum("bka,ahc->bhkc", y, p["key_w"])
    v = torch.einsum("bka,ahc->bhkc", y, p["value_w"])
    o = ops.attention(q, k, v, golden.inputs["nonbatched_bias"], golden.inputs["mask"])
    g = torch.sigmoid(torch.einsum("bqa,ahc->bhqc", x, p["gating_w"]) + p["gating_b"][:, None])
    return {"act": torch.einsum("bhqc,hco->bqo", g * o, p["output_w"]) + p["output_b"]}


def global_attention(golden: Golden) -> dict[str, Tensor]:
    p, x, mask = golden.parameters, golden.inputs["q_data"], golden.inputs["q_mask"]
    layer = MultiHeadAttention(x.shape[-1], *heads(p, ""), attn_dim=-2, gated="gating_w" in p, is_global=True)
    loaded(layer, golden_weights.attention(p), p)
    return {"act": layer(x, attention_mask=mask[..., 0])}


def row_attention(golden: Golden) -> dict[str, Tensor]:
    p, m, z = golden.parameters, golden.inputs["msa_act"], golden.inputs["pair_act"]
    layer = MSARowAttentionWithPairBias(m.shape[-1], z.shape[-1], *heads(p))
    loaded(layer, golden_weights.msa_row_attention_with_pair_bias(p), p)
    return {"act": layer(m, z, golden.inputs["msa_mask"])}


def column_attention(golden: Golden) -> dict[str, Tensor]:
    p, m = golden.parameters, golden.inputs["msa_act"]
    layer = loaded(MSAColumnAttention(m.shape[-1], *heads(p)), golden_weights.msa_column_attention(p), p)
    return {"act": layer(m, golden.inputs["msa_mask"])}


def column_global_attention(golden: Golden) -> dict[str, Tensor]:
    p, m = golden.parameters, golden.inputs["msa_act"]
    layer = loaded(MSAColumnGlobalAttention(m.shape[-1], *heads(p)), golden_weights.msa_column_global_attention(p), p)
    return {"act": layer(m, golden.inputs["msa_mask"])}


def transition(kind: type[MSATransition] | type[PairTransition]) -> Callable[[Golden], dict[str, Tensor]]:
    """DeepMind's takes a mask and does not look at it; ours takes none."""

    def run(golden: Golden) -> dict[str, Tensor]:
        p, x = golden.parameters, golden.inputs["act"]
        n = p["transition1//bias"].size // x.shape[-1]
        return {"act": loaded(kind(x.shape[-1], n), golden_weights.transition(p), p)(x)}

    return run


def outer_product_mean(golden: Golden) -> dict[str, Tensor]:
    p, m = golden.parameters, golden.inputs["msa_act"]
    layer = OuterProductMean(m.shape[-1], p["output_b"].size, p["left_projection//bias"].size)
    return {"act": loaded(layer, golden_weights.outer_product_mean(p), p)(m, golden.inputs["msa_mask"])}


def triangle_multiplication(mult_type: str) -> Callable[[Golden], dict[str, Tensor]]:
    def run(golden: Golden) -> dict[str, Tensor]:
        p, z = golden.parameters, golden.inputs["pair_act"]
        layer = TriangleMultiplication(z.shape[-1], mult_type, len(p["output_projection//weights"]))
        loaded(layer, getattr(golden_weights, f"triangle_multiplication_{mult_type}")(p), p)
        return {"act": layer(z, golden.inputs["pair_mask"])}

    return run


def triangle_attention(node_type: str) -> Callable[[Golden], dict[str, Tensor]]:
    def run(golden: Golden) -> dict[str, Tensor]:
        p, z = golden.parameters, golden.inputs["pair_act"]
        layer = TriangleAttention(z.shape[-1], node_type, *heads(p))
        loaded(layer, golden_weights.triangle_attention(p), p)
        return {"act": layer(z, golden.inputs["pair_mask"])}

    return run


def block_sizes(p: Parameters) -> dict[str, int]:
    """The options of a block that its parameters tell."""
    c_msa_att, N_head_msa = heads(p, "msa_row_attention_with_pair_bias/attention//")
    c_tri_att, N_head_tri = heads(p, "triangle_attention_starting_node/attention//")
    n_msa, n_pair = (
        p[f"{kind}_transition/transition1//bias"].size // p[f"{kind}_transition/transition2//bias"].size
        for kind in ("msa", "pair")
    )
    return {
        "c_msa_att": c_msa_att,
        "N_head_msa": N_head_msa,
        "c_opm": p["outer_product_mean/left_projection//bias"].size,
        "c_tri_mul": len(p["triangle_multiplication_outgoing/output_projection//weights"]),
        "c_tri_att": c_tri_att,
        "N_head_tri": N_head_tri,
        "n_msa_transition": n_msa,
        "n_pair_transition": n_pair,
    }


def block(kind: type[EvoformerBlock], opm_first: bool) -> Callable[[Golden], dict[str, Tensor]]:
    def run(golden: Golden) -> dict[str, Tensor]:
        p, m, z = golden.parameters, golden.inputs["msa"], golden.inputs["pair"]
        assert golden.opm_first == opm_first
        layer = kind(m.shape[-1], z.shape[-1], opm_first=opm_first, **block_sizes(p))
        loaded(layer, golden_weights.block(p), p)
        m, z = layer(m, z, golden.inputs["msa_mask"], golden.inputs["pair_mask"])
        return {"msa": m, "pair": z}

    return run


# The part of a file's name before "__", and how to compute what it holds.
MODULES: dict[str, Callable[[Golden], dict[str, Tensor]]] = {
    "attention": attention,
    "global_attention": global_attention,
    "msa_row_attention_with_pair_bias": row_attention,
    "msa_column_attention": column_attention,
    "msa_column_global_attention": column_global_attention,
    "msa_transition": transition(MSATransition),
    "pair_transition": transition(PairTransition),
    "outer_product_mean": outer_product_mean,
    "triangle_multiplication_outgoing": triangle_multiplication("outgoing"),
    "triangle_multiplication_incoming": triangle_multiplication("incoming"),
    "triangle_multiplication_outgoing_fused": triangle_multiplication("outgoing"),
    "triangle_multiplication_incoming_fused": triangle_multiplication("incoming"),
    "triangle_attention_starting_node": triangle_attention("starting_node"),
    "triangle_attention_ending_node": triangle_attention("ending_node"),
    "evoformer_iteration_monomer": block(EvoformerBlock, opm_first=False),
    "evoformer_iteration_multimer_v2": block(EvoformerBlock, opm_first=True),
    "evoformer_iteration_multimer_v3": block(EvoformerBlock, opm_first=True),
    "extra_msa_stack_monomer": block(ExtraMSABlock, opm_first=False),
    "extra_msa_stack_multimer_v2": block(ExtraMSABlock, opm_first=True),
    "extra_msa_stack_multimer_v3": block(ExtraMSABlock, opm_first=True),
}
N_MODULE_FILES = 72

# Files that another test reads, and which.
TESTED_ELSEWHERE = {
    "features": "features/test_featurizer.py",
    "features_multimer": "features/test_multimer.py",
    "msa_features": "features/test_pipeline.py",
    "parse_a3m": "features/test_reading.py",
    "parse_sto": "features/test_reading.py",
}
# Stacks are tested here; the embedder, the heads and the rest of these wait for the model they belong to.
STACKED = ["model_monomer__base", "model_monomer__dead", "model_monomer__first_cycle"]
# What nothing here computes yet, whether or not its files are there.
LATER = {"model_monomer"}


def kind_of(name: str) -> str:
    return name.split("__")[0]


FILES = sorted(path.stem for path in (TESTS / "golden").glob("*.npz"))


def assert_parity(ours: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """The criterion; the number goes to the output, for `docs/parity.md`."""
    for name, value in expected.items():
        assert ours[name].dtype == value.dtype == torch.float32
        assert ours[name].shape == value.shape
        difference = ((ours[name] - value).abs().max() / value.abs().max().clamp(min=1)).item()
        print(f"largest difference of {name}: {difference:.1e}")
        assert difference <= TOLERANCE, name


@pytest.fixture(params=["reference", "streamed"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What "auto" takes, since everything is small or nothing is."""
    monkeypatch.setattr(streaming, "SMALL", 0 if request.param == "streamed" else math.inf)
    return request.param


@pytest.mark.parametrize("name", [name for name in FILES if kind_of(name) in MODULES])
@torch.no_grad()
def test_a_module_is_deepminds(name: str, kernel: str) -> None:
    golden = read(name)
    with kernels_used() as used:
        outputs = MODULES[kind_of(name)](golden)
    assert_parity(outputs, golden.outputs)
    if name == "global_attention__nogate":  # the streamed kernel needs the gate
        kernel = "reference"
    assert {ran for _, ran in used} == ({kernel} if name != "attention__cross" else set())


@pytest.mark.parametrize("name", STACKED)
@pytest.mark.usefixtures("kernel")
@torch.no_grad()
def test_stacks_with_stacked_parameters_are_deepminds(name: str) -> None:
    golden = read(name)
    with np.load(TESTS / "golden" / "model_monomer__params.npz") as arrays:
        prefix = "alphafold/alphafold_iteration/evoformer/"
        p = {key.removeprefix(prefix): arrays[key] for key in arrays if key.startswith(prefix)}
    outputs, inputs = golden.outputs, golden.inputs
    c_m, c_e, c_z, c_s = (outputs[key].shape[-1] for key in ("msa", "extra_stack_msa", "pair", "single"))
    pair_mask = torch.outer(inputs["seq_mask"], inputs["seq_mask"])

    extra = golden_weights.scope(p, "extra_msa_stack")
    N_block = len(extra["outer_product_mean//output_b"])
    sizes = block_sizes({key: value[0] for key, value in extra.items()})
    extra_msa = ExtraMSAStack(c_e, c_z, N_block, **sizes)
    loaded(extra_msa, golden_weights.stack(extra), extra)
    z = extra_msa(outputs["embedded_extra_msa"], outputs["embedded_pair"], inputs["extra_msa_mask"], pair_mask)
    assert_parity({"extra_stack_pair": z}, {"extra_stack_pair": outputs["extra_stack_pair"]})

    main = golden_weights.scope(p, "evoformer_iteration")
    N_block = len(main["outer_product_mean//output_b"])
    single = golden_weights.linear("linear", p, "single_activations")
    sizes = block_sizes({key: value[0] for key, value in main.items()})
    evoformer = EvoformerStack(c_m, c_z, N_block, c_s, **sizes)
    linear = {key: value for key, value in p.items() if key.startswith("single_activations")}
    loaded(evoformer, golden_weights.stack(main) | single, {**main, **linear})
    m, z, s = evoformer(outputs["embedded_msa"], z, inputs["msa_mask"], pair_mask)
    assert_parity({"msa": m, "pair": z, "single": s}, {key: outputs[key] for key in ("msa", "pair", "single")})


def test_every_golden_file_is_tested_or_waits_for_what_it_tests() -> None:
    known = MODULES.keys() | TESTED_ELSEWHERE.keys() | LATER
    assert [name for name in FILES if kind_of(name) not in known] == []
    assert sum(kind_of(name) in MODULES for name in FILES) >= N_MODULE_FILES
    assert {kind_of(name) for name in FILES} >= MODULES.keys()
    for name in FILES:
        if kind_of(name) in TESTED_ELSEWHERE:
            test = (TESTS / TESTED_ELSEWHERE[kind_of(name)]).read_text()
            assert f'"{name.split("__")[-1]}"' in test, name
