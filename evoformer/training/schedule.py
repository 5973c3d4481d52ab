"""The optimizer, and how its learning rate goes."""

import math

from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR


def adamw(module: nn.Module, learning_rate: float, weight_decay: float) -> AdamW:
    """AdamW that decays matrices only, neither biases nor the scales of LayerNorms."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=learning_rate, betas=(0.9, 0.98))


def warmup_cosine(optimizer: AdamW, warmup_steps: int, total_steps: int, floor: float = 0.02) -> LambdaLR:
    """A linear rise over the first steps, then half a cosine down to a share `floor` of the learning rate."""

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))

    return LambdaLR(optimizer, factor)
