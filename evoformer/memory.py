"""How much memory a pass will take, from the shapes alone."""

from typing import Any
from weakref import WeakSet, finalize

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from evoformer.blocks.evoformer import EvoformerBlock, EvoformerStack
from evoformer.blocks.extra_msa import ExtraMSAStack
from evoformer.kernels.operator import workspace_of
from evoformer.trunk import Trunk


def estimate_memory(trunk: nn.Module, N_seq: int, N_res: int, *, training: bool = False) -> int:
    """Bytes of memory at the peak of one pass, without running it.

    Everything that PyTorch allocates counts: parameters, m and z, what is kept for the backward pass, temporary
    tensors and, in training, all gradients. The state of an optimiser does not, nor does PyTorch itself.

    The pass runs on tensors that have a shape and no memory, as the modules' `Execution` says and in their training or
    evaluation mode; so the estimate holds for any kernel and any way of recomputing. Memory inside a fused operator of
    PyTorch or of a third party is not seen.

    Args:
        trunk: a `Trunk`, an Evoformer or extra-MSA stack, or a block.
        N_seq: sequences of the MSA.
        N_res: residues.
        training: whether the backward pass counts, too.

    Raises:
        ValueError: the module is none of these.
    """
    stack = trunk.evoformer if isinstance(trunk, Trunk) else trunk
    block = stack.blocks[0] if isinstance(stack, EvoformerStack | ExtraMSAStack) else stack
    if not isinstance(block, EvoformerBlock):
        raise ValueError(f"trunk is {type(trunk).__name__}, expected a Trunk, an Evoformer or extra-MSA stack or block")
    parameters = dict(stack.named_parameters())
    dtype, device = next(iter(parameters.values())).dtype, next(iter(parameters.values())).device
    c_m = block.msa_att_row.layer_norm_m.normalized_shape[0]
    c_z = block.msa_att_row.layer_norm_z.normalized_shape[0]
    others = sum(p.nbytes for p in trunk.parameters()) - sum(p.nbytes for p in parameters.values())

    with FakeTensorMode() as fake, torch.set_grad_enabled(training), _Allocations() as allocations:
        weights: dict[str, Tensor] = {
            f"stack.{name}": fake.from_tensor(parameter) for name, parameter in parameters.items()
        }
        m = torch.empty(N_seq, N_res, c_m, dtype=dtype, device=device, requires_grad=training)
        z = torch.empty(N_res, N_res, c_z, dtype=dtype, device=device, requires_grad=training)
        allocations.add(*weights.values(), m, z)
        functional_call(_Pass(stack), weights, (m, z))
    return allocations.peak + others * (2 if training else 1)


class _Pass(nn.Module):
    """A forward pass, and where gradients are recorded a backward pass, as one module."""

    def __init__(self, stack: nn.Module) -> None:
        super().__init__()
        self.stack = stack

    def forward(self, m: Tensor, z: Tensor) -> None:
        """Run the stack and leave the gradients where autograd puts them."""
        results = tree_leaves(self.stack(m, z))
        if torch.is_grad_enabled():
            torch.autograd.backward(results, [torch.empty_like(result) for result in results])


class _Allocations(TorchDispatchMode):
    """Watches operators and counts the memory of the tensors that are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self.known: WeakSet[Any] = WeakSet()

    def add(self, *tensors: Tensor) -> None:
        """Count the memory of tensors until it is freed."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage not in self.known:
                self.known.add(storage)
                self.live += storage.nbytes()
                finalize(storage, self._free, storage.nbytes())
        self.peak = max(self.peak, self.live)

    def _free(self, nbytes: int) -> None:
        self.live -= nbytes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and count its results, and while it runs its workspace."""
        results = func(*args, **(kwargs or {}))
        self.add(*(result for result in tree_leaves(results) if isinstance(result, Tensor)))
        self.peak = max(self.peak, self.live + workspace_of(func, args))
        return results
