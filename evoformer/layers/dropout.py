"""Dropout that is shared along one axis: AlphaFold 2 supplement, section 1.11.6."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SharedDropout(nn.Module):
    """Dropout whose one draw is shared along an axis.

    Args:
        p: probability of a zero.
        shared_axis: the axis along which the draw is the same.

    Raises:
        ValueError: p is not a probability.
    """

    def __init__(self, p: float, shared_axis: int) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability is {p}, expected 0 to 1")
        self.p = p
        self.shared_axis = shared_axis

    def forward(self, x: Tensor) -> Tensor:
        """Drop in training, return x as it is in evaluation."""
        if not self.training or self.p == 0:
            return x
        shape = list(x.shape)
        shape[self.shared_axis] = 1
        return x * F.dropout(torch.ones(shape, dtype=x.dtype, device=x.device), self.p)

    def extra_repr(self) -> str:
        """For `print(module)`."""
        return f"p={self.p}"


class DropoutRowwise(SharedDropout):
    """One draw for all rows: x is [*, rows, columns, c], the draw [*, 1, columns, c]."""

    def __init__(self, p: float) -> None:
        super().__init__(p, shared_axis=-3)


class DropoutColumnwise(SharedDropout):
    """One draw for all columns: x is [*, rows, columns, c], the draw [*, rows, 1, c]."""

    def __init__(self, p: float) -> None:
        super().__init__(p, shared_axis=-2)
