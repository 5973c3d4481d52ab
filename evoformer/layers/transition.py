"""Transitions: a two-layer perceptron on each position of the MSA or of the pair representation."""

from jaxtyping import Float
from torch import Tensor, nn

from evoformer import ops
from evoformer.execution import Execution
from evoformer.kernels.parts import TransitionParts
from evoformer.layers.linear import Linear


class Transition(nn.Module):
    """LayerNorm, a linear layer that widens n times, ReLU, and a linear layer back.

    Args:
        c_in: channels of the input.
        n: factor of the hidden channels.
    """

    execution = Execution()

    def __init__(self, c_in: int, n: int = 4) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(c_in)
        self.linear_1 = Linear(c_in, n * c_in, init="relu")
        self.linear_2 = Linear(n * c_in, c_in, init="final")

    def forward(self, x: Float[Tensor, "*batch c"]) -> Float[Tensor, "*batch c"]:
        """The update of x, position by position: [*, c_in] to [*, c_in]."""
        parts = TransitionParts(self.layer_norm, self.linear_1, self.linear_2)
        return ops.transition(x, parts, self.execution)


class MSATransition(Transition):
    """Transition of the MSA.

    AlphaFold 2 supplement, Algorithm 9. Returns the update; the block adds it.

    Args:
        c_m: channels of the MSA.
        n: factor of the hidden channels.
    """

    def __init__(self, c_m: int, n: int = 4) -> None:
        super().__init__(c_m, n)


class PairTransition(Transition):
    """Transition of the pair representation.

    AlphaFold 2 supplement, Algorithm 15. Returns the update; the block adds it.

    Args:
        c_z: channels of the pair representation.
        n: factor of the hidden channels.
    """

    def __init__(self, c_z: int, n: int = 4) -> None:
        super().__init__(c_z, n)
