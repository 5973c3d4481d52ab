"""DeepMind's parameters as the state dicts of our modules, each transform written out.

A function takes the parameters of one of DeepMind's modules, named relative to its scope, and returns the state dict of
ours. DeepMind's linear layers are [c_in, c_out], ours [c_out, c_in]; theirs keep heads and channels apart.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

Parameters = Mapping[str, np.ndarray]
State = dict[str, Tensor]


def attention(p: Parameters) -> State:
    """`Attention` and `GlobalAttention`; the latter has one key and one value head, without an axis for it."""
    state = {
        "linear_q.weight": into_heads(p["query_w"]),
        "linear_k.weight": into_heads(p["key_w"]),
        "linear_v.weight": into_heads(p["value_w"]),
        "linear_o.weight": out_of_heads(p["output_w"]),
        "linear_o.bias": torch.tensor(p["output_b"]),
    }
    if "gating_w" in p:
        state["linear_g.weight"] = into_heads(p["gating_w"])
        state["linear_g.bias"] = torch.tensor(p["gating_b"]).flatten()
    return state


def msa_row_attention_with_pair_bias(p: Parameters) -> State:
    return {
        **norm("layer_norm_m", p, "query_norm"),
        **norm("layer_norm_z", p, "feat_2d_norm"),
        "linear_z.weight": torch.tensor(p["feat_2d_weights"]).T,
        **below("mha", attention(scope(p, "attention"))),
    }


def msa_column_attention(p: Parameters) -> State:
    return {**norm("layer_norm_m", p, "query_norm"), **below("mha", attention(scope(p, "attention")))}


def msa_column_global_attention(p: Parameters) -> State:
    return {**norm("layer_norm_m", p, "query_norm"), **below("global_attention", attention(scope(p, "attention")))}


def transition(p: Parameters) -> State:
    return {
        **norm("layer_norm", p, "input_layer_norm"),
        **linear("linear_1", p, "transition1"),
        **linear("linear_2", p, "transition2"),
    }


def outer_product_mean(p: Parameters) -> State:
    output_w = torch.tensor(p["output_w"])  # [c_left, c_right, c_z]
    return {
        **norm("layer_norm", p, "layer_norm_input"),
        **linear("linear_1", p, "left_projection"),
        **linear("linear_2", p, "right_projection"),
        "linear_out.weight": output_w.flatten(0, 1).T,
        "linear_out.bias": torch.tensor(p["output_b"]),
    }


def triangle_multiplication_outgoing(p: Parameters) -> State:
    return triangle_multiplication(p, left="a", right="b")


def triangle_multiplication_incoming(p: Parameters) -> State:
    """DeepMind multiplies left[k, j] and right[k, i], the supplement and we a[k, i] and b[k, j]."""
    return triangle_multiplication(p, left="b", right="a")


def triangle_multiplication(p: Parameters, left: str, right: str) -> State:
    if "projection//weights" in p:
        p = separate_projections(p)
    return {
        **norm("layer_norm_in", p, "layer_norm_input"),
        **linear(f"linear_{left}_p", p, "left_projection"),
        **linear(f"linear_{right}_p", p, "right_projection"),
        **linear(f"linear_{left}_g", p, "left_gate"),
        **linear(f"linear_{right}_g", p, "right_gate"),
        **norm("layer_norm_out", p, "center_layer_norm"),
        **linear("linear_z", p, "output_projection"),
        **linear("linear_g", p, "gating_linear"),
    }


def separate_projections(p: Parameters) -> Parameters:
    """The fused form's parameters under the names of the separate one: the first half is left, the second right."""
    separate = {name: value for name, value in p.items() if name.startswith(("output_projection", "gating_linear"))}
    for part in ("scale", "offset"):
        separate[f"layer_norm_input//{part}"] = p[f"left_norm_input//{part}"]
        separate[f"center_layer_norm//{part}"] = p[f"center_norm//{part}"]
    for part in ("weights", "bias"):
        for kind in ("projection", "gate"):
            separate[f"left_{kind}//{part}"], separate[f"right_{kind}//{part}"] = np.split(
                p[f"{kind}//{part}"], 2, axis=-1
            )
    return separate


def triangle_attention(p: Parameters) -> State:
    return {
        **norm("layer_norm", p, "query_norm"),
        "linear.weight": torch.tensor(p["feat_2d_weights"]).T,
        **below("mha", attention(scope(p, "attention"))),
    }


# DeepMind's scope in a block, our layer there, and what turns one's parameters into the other's.
LAYERS: dict[str, tuple[str, Callable[[Parameters], State]]] = {
    "msa_row_attention_with_pair_bias": ("msa_att_row", msa_row_attention_with_pair_bias),
    "msa_column_attention": ("msa_att_col", msa_column_attention),
    "msa_column_global_attention": ("msa_att_col", msa_column_global_attention),
    "msa_transition": ("msa_transition", transition),
    "outer_product_mean": ("outer_product_mean", outer_product_mean),
    "triangle_multiplication_outgoing": ("pair_stack.tri_mul_out", triangle_multiplication_outgoing),
    "triangle_multiplication_incoming": ("pair_stack.tri_mul_in", triangle_multiplication_incoming),
    "triangle_attention_starting_node": ("pair_stack.tri_att_start", triangle_attention),
    "triangle_attention_ending_node": ("pair_stack.tri_att_end", triangle_attention),
    "pair_transition": ("pair_stack.pair_transition", transition),
}


def block(p: Parameters) -> State:
    """`EvoformerIteration`, of the main and of the extra-MSA stack."""
    state = {}
    for name in {name.split("/")[0] for name in p}:
        ours, convert = LAYERS[name]
        state.update(below(ours, convert(scope(p, name))))
    return state


def stack(p: Parameters) -> State:
    """A stack of blocks, whose parameters have an axis more in front."""
    (length,) = {len(value) for value in p.values()}
    state = {}
    for i in range(length):
        state.update(below(f"blocks.{i}", block({name: value[i] for name, value in p.items()})))
    return state


def scope(p: Parameters, name: str) -> Parameters:
    """The parameters below a scope, named relative to it: `attention//query_w` below `attention` is `query_w`."""
    return {
        key.removeprefix(f"{name}/").removeprefix("/"): value for key, value in p.items() if key.startswith(f"{name}/")
    }


def below(name: str, state: State) -> State:
    """A state dict as part of a larger module's."""
    return {f"{name}.{key}": value for key, value in state.items()}


def norm(ours: str, p: Parameters, theirs: str) -> State:
    return {
        f"{ours}.weight": torch.tensor(p[f"{theirs}//scale"]),
        f"{ours}.bias": torch.tensor(p[f"{theirs}//offset"]),
    }


def linear(ours: str, p: Parameters, theirs: str) -> State:
    return {
        f"{ours}.weight": torch.tensor(p[f"{theirs}//weights"]).T,
        f"{ours}.bias": torch.tensor(p[f"{theirs}//bias"]),
    }


def into_heads(w: np.ndarray) -> Tensor:
    """[c_in, N_head, c] to [N_head * c, c_in]."""
    return torch.tensor(w).flatten(1).T


def out_of_heads(w: np.ndarray) -> Tensor:
    """[N_head, c, c_out] to [c_out, N_head * c]."""
    return torch.tensor(w).flatten(0, -2).T
