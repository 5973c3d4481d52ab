"""Linear layers with the initialisers of the AlphaFold 2 supplement, section 1.11.4."""

import math
from typing import Literal, get_args

import torch
from torch import nn

Init = Literal["default", "relu", "glorot", "gating", "normal", "final"]

# A normal distribution cut off at two standard deviations keeps this share of its standard deviation.
TRUNCATED_STD = 0.87962566103423978


class Linear(nn.Linear):
    """`torch.nn.Linear`, initialised as AlphaFold does it; biases start at 0.

    Args:
        c_in: input channels.
        c_out: output channels.
        bias: whether a bias is added.
        init: what the layer is for.
            "default": LeCun's truncated normal, variance 1/c_in;
            "relu": He's, before a ReLU, variance 2/c_in;
            "glorot": Glorot's uniform, for queries, keys and values;
            "gating": weights 0 and biases 1, before the sigmoid of a gate;
            "normal": variance 1/c_in, not truncated, for the pair bias;
            "final": weights 0, the last layer of an update or of a head.

    Raises:
        ValueError: the name of the initialiser is unknown.
    """

    def __init__(self, c_in: int, c_out: int, bias: bool = True, init: Init = "default") -> None:
        if init not in get_args(Init):
            raise ValueError(f"init is {init!r}, expected one of {', '.join(get_args(Init))}")
        self.init = init
        super().__init__(c_in, c_out, bias=bias)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        if self.init in ("default", "relu"):
            std = math.sqrt((2.0 if self.init == "relu" else 1.0) / self.in_features) / TRUNCATED_STD
            nn.init.trunc_normal_(self.weight, std=std, a=-2 * std, b=2 * std)
        elif self.init == "glorot":
            nn.init.xavier_uniform_(self.weight)
        elif self.init == "normal":
            nn.init.normal_(self.weight, std=self.in_features**-0.5)
        else:
            nn.init.zeros_(self.weight)
        if self.bias is not None:
            nn.init.constant_(self.bias, 1.0 if self.init == "gating" else 0.0)
