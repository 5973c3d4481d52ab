"""Linear: the supplement's initialisers, section 1.11.4."""

import math

import pytest
import torch

from evoformer.layers.linear import Linear

c_in, c_out = 400, 300


@pytest.mark.parametrize(("init", "variance"), [("default", 1 / c_in), ("relu", 2 / c_in)])
def test_default_and_relu_are_truncated_normal_with_lecuns_and_hes_variance(init: str, variance: float) -> None:
    weight = Linear(c_in, c_out, init=init).weight
    assert weight.std().item() == pytest.approx(math.sqrt(variance), rel=0.02)
    assert abs(weight.mean().item()) < 0.02 * math.sqrt(variance)
    # Cut at two standard deviations of the normal distribution that is cut, 2.27 of what is left.
    assert 2.2 < weight.abs().max().item() / math.sqrt(variance) < 2.28


def test_glorot_is_uniform_up_to_its_bound() -> None:
    weight, bound = Linear(c_in, c_out, init="glorot").weight, math.sqrt(6 / (c_in + c_out))
    assert 0.99 * bound < weight.abs().max().item() <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)


def test_normal_is_not_cut_off() -> None:
    weight = Linear(c_in, c_out, init="normal").weight
    assert weight.std().item() == pytest.approx(c_in**-0.5, rel=0.02)
    assert weight.abs().max().item() > 3 * c_in**-0.5


def test_gates_start_nearly_open_and_final_layers_at_zero() -> None:
    gate, final = Linear(c_in, c_out, init="gating"), Linear(c_in, c_out, init="final")
    assert (gate.weight == 0).all()
    assert (gate.bias == 1).all()
    assert (final.weight == 0).all()
    assert (final.bias == 0).all()


def test_other_biases_start_at_zero_and_may_be_left_out() -> None:
    for init in ("default", "relu", "glorot", "normal"):
        assert (Linear(3, 4, init=init).bias == 0).all()
        assert Linear(3, 4, bias=False, init=init).bias is None


def test_initialisation_follows_the_seed_and_can_be_repeated() -> None:
    torch.manual_seed(1)
    layer = Linear(3, 4)
    before = layer.weight.clone()
    layer.reset_parameters()
    assert not torch.equal(layer.weight, before)
    torch.manual_seed(1)
    assert torch.equal(Linear(3, 4).weight, before)


@pytest.mark.usefixtures("without_shape_checks")
def test_an_unknown_initialiser_is_an_error() -> None:
    with pytest.raises(ValueError, match="init is 'xavier', expected one of default, relu"):
        Linear(3, 4, init="xavier")
