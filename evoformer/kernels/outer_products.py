"""The sums over sequences of outer products, projected, of one alignment: two orders of the same products.

z_ij = W vec(sum_s a_si b_sj^T) can be read as W applied to the products, or as a_i applied to what W makes of b_j. With
many sequences the first takes fewer operations, with few (below 37 at AlphaFold's widths and 256 residues) the second.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from evoformer.execution import rows_in_slices
from evoformer.kernels.streaming import ChunkedLinear, Scratch, accumulator, add_product, rows_of


class ProductsFirst:
    """Products of some residues i and j at a time, [i, j, d, c], then the projection.

    Args:
        weight: [c_z, c * c].
        bias: [c_z].
        rows: residues i at a time.
    """

    def __init__(self, weight: Tensor, bias: Tensor, rows: int) -> None:
        self.rows = rows
        self.project, self.scratch = ChunkedLinear(_swapped(weight), bias), Scratch(weight)

    def arranged(self, columns: Tensor) -> Tensor:
        """a or b as the other methods take them, from [N_seq, N_res, c]."""
        return columns.permute(1, 2, 0).contiguous()

    def columns(self, arranged: Tensor) -> Tensor:
        """The inverse of `arranged`, as a view."""
        return arranged.permute(2, 0, 1)

    def write(self, a: Tensor, b: Tensor, scale: Tensor, out: Tensor) -> None:
        """Write the sums, projected and times scale [N_res, N_res], to out [N_res, N_res, c_z]."""
        for i, j in self._tiles(len(a)):
            update = self.project(self._products(a[i], b[j]), out=self.scratch("update", *out[i, j].shape))
            torch.mul(update.view(out[i, j].shape), scale[i, j, None], out=out[i, j])

    def add_gradients(self, grad: Tensor, a: Tensor, b: Tensor, scale: Tensor, a_grad: Tensor, b_grad: Tensor) -> None:
        """Add to the gradients of a and b, from that of what `write` has written."""
        for i, j in self._tiles(len(a)):
            sum_grad = (grad[i, j] * scale[i, j, None]).to(a.dtype).flatten(0, 1)
            tile = b[j].flatten(0, 1)  # [(j d), N_seq]
            products = self._products(a[i], b[j])
            self.project.add_gradients(sum_grad, products)
            products_grad = self.project.backward(sum_grad, out=products)  # in the products' place
            products_grad = products_grad.view(len(a[i]), len(tile), -1)  # [i, (j d), c]
            add_product(a_grad[i], products_grad.transpose(1, 2), tile.expand(len(products_grad), -1, -1))
            _add_sum(b_grad[j].view(tile.shape), products_grad, a[i], self.scratch)

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Those of weight and bias."""
        weight_grad, bias_grad = self.project.gradients()
        return _swapped(weight_grad), bias_grad

    def _tiles(self, N_res: int) -> Iterator[tuple[slice, slice]]:
        """Residues i and j: few pairs at a time, and so few j that their columns stay in the cache for all i."""
        for i in rows_in_slices(N_res, self.rows):
            for j in rows_in_slices(N_res, rows_of(None, self.rows)):
                yield i, j

    def _products(self, a: Tensor, b: Tensor) -> Tensor:
        """Sums over sequences of the products of a [i, c, N_seq] and b [j, d, N_seq]: [(i j), (d c)]."""
        tile = b.flatten(0, 1).expand(len(a), -1, -1)
        products = torch.bmm(tile, a.transpose(1, 2), out=self.scratch("products", *tile.shape[:2], a.shape[1]))
        return products.view(len(a) * len(b), -1)


class WeightFirst:
    """What the projection makes of b for some residues j at a time, [j, N_seq, c, c_z], then its products with a.

    The methods and their shapes are those of `ProductsFirst`.

    Args:
        weight: [c_z, c * c].
        bias: [c_z].
        rows: residues j at a time, at the most.
    """

    def __init__(self, weight: Tensor, bias: Tensor, rows: int) -> None:
        c = math.isqrt(weight.shape[1])
        self.rows, self.bias, self.bias_grad = rows, bias, accumulator(bias)
        by_d = weight.unflatten(1, (c, c)).permute(1, 0, 2).flatten(0, 1)  # [(c c_z), d]
        self.project, self.scratch = ChunkedLinear(by_d, weight.new_empty(0)), Scratch(weight)

    def arranged(self, columns: Tensor) -> Tensor:
        """a or b, [N_res, N_seq, c]."""
        return columns.transpose(0, 1).contiguous()

    def columns(self, arranged: Tensor) -> Tensor:
        """The inverse of `arranged`, as a view."""
        return arranged.transpose(0, 1)

    def write(self, a: Tensor, b: Tensor, scale: Tensor, out: Tensor) -> None:
        """Write the sums, projected and times scale."""
        for j in self._tiles(a):
            made = self._made(b[j])
            update = self.scratch("update", len(made), len(a), made.shape[2])
            torch.baddbmm(self.bias, a.flatten(1).expand(len(made), -1, -1), made, out=update)
            torch.mul(update.transpose(0, 1), scale[:, j, None], out=out[:, j])

    def add_gradients(self, grad: Tensor, a: Tensor, b: Tensor, scale: Tensor, a_grad: Tensor, b_grad: Tensor) -> None:
        """Add to the gradients of a and b."""
        for j in self._tiles(a):
            sum_grad = self.scratch.copy("sum_grad", (grad[:, j] * scale[:, j, None]).transpose(0, 1))  # [j, i, c_z]
            self.bias_grad += sum_grad.sum((0, 1))
            made = self._made(b[j])
            _add_sum(a_grad.flatten(1), sum_grad, made.transpose(1, 2), self.scratch)
            made_grad = torch.bmm(a.flatten(1).t().expand(len(made), -1, -1), sum_grad, out=made)  # in its place
            by_sequence = made_grad.view(-1, len(self.project.weight))
            self.project.add_gradients(by_sequence, b[j].flatten(0, 1))
            b_grad[j] += self.project.backward(by_sequence).view(b[j].shape)

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Those of weight and bias."""
        weight_grad = self.project.gradients()[0].unflatten(0, (-1, len(self.bias)))  # [c, c_z, d]
        return weight_grad.transpose(0, 1).flatten(1), self.bias_grad.to(self.bias.dtype)

    def _tiles(self, a: Tensor) -> Iterator[slice]:
        """So few residues j that what is made of them stays in the cache."""
        N_res, N_seq, c = a.shape
        return rows_in_slices(N_res, min(self.rows, rows_of(None, max(N_res, N_seq * c))))

    def _made(self, b: Tensor) -> Tensor:
        """The projection's part of b [j, N_seq, d]: [j, (N_seq c), c_z]."""
        made = self.scratch("made", b.shape[0] * b.shape[1], len(self.project.weight))
        return self.project(b.flatten(0, 1), out=made).view(len(b), -1, len(self.bias))


def cheaper(N_seq: int, N_res: int, c: int, c_z: int) -> type[ProductsFirst] | type[WeightFirst]:
    """The order of fewer operations."""
    products_first = N_res * c * c * (N_seq + c_z)
    weight_first = N_seq * c * c_z * (N_res + c)
    return ProductsFirst if products_first < weight_first else WeightFirst


def _add_sum(total: Tensor, a: Tensor, b: Tensor, scratch: Scratch) -> None:
    """Add the sum over i of a_i b_i to a matrix."""
    if total.dtype == a.dtype:
        for a_i, b_i in zip(a, b, strict=True):
            total.addmm_(a_i, b_i)
    else:  # each addition to a wider matrix is a pass over all of it
        total += scratch.copy("a", a.transpose(0, 1)).flatten(1) @ b.flatten(0, 1)


def _swapped(weight: Tensor) -> Tensor:
    """Of the weights [c_z, c * c], with the two channels in the other order."""
    c = math.isqrt(weight.shape[1])
    return weight.unflatten(1, (c, c)).transpose(1, 2).flatten(1)
