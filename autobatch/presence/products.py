"""Products of rows with a tensor that all threads share, a matrix product or a convolution say.

Its gradient is one sum over all rows, and zero times a row that is infinite is nan: that can not be
told from what the others give. So where it comes out not finite, it is taken once more of the rows
that somebody needed, in whichever graph that is; but not in the backward of a backward, where it
has been added to others by then.

In: a function, and its operands; ``dims`` says where the rows of each are, None for what is shared.
Out: what the function gives, and a gradient of what is shared that only such rows have a part in.
The function may be any that draws nothing: a cell of a recurrent network is a product like others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from autobatch.compat import is_batched, is_wrapped, level_of, on_device, unwrap_if_dead, unwrapped
from autobatch.presence.guards import (
    Fold,
    Record,
    folded,
    has_views,
    is_finite,
    record_at_work,
    watch,
)
from autobatch.presence.known import Place
from autobatch.presence.layers import differentiated, is_in_a_graph
from autobatch.presence.walk import all_of
from autobatch.saving.savers import is_saving

FACTORS = frozenset(
    """addmm addmv affine baddbmm bilinear bmm conv1d conv2d convolution Conv1d Conv2d Conv3d einsum
 conv_transpose1d conv_transpose2d conv_transpose3d group_norm layer_norm linear matmul mm mv
 native_layer_norm prelu prelu_kernel rms_norm trilinear weighted""".split()  # noqa: SIM905
)
"""Their gradients hold their operands."""
Function = Callable[..., Any]


@dataclass(slots=True, eq=False, repr=False)
class Product:
    """``function(*operands)``, whose rows are in dimension ``dim`` of the results, folded so.

    ``places`` are of the results that are differentiated, by number.
    """

    record: Record
    function: Function
    operands: list[Any]
    dims: Sequence[int | None]
    dim: int
    fold: Fold
    places: dict[int, Place] = field(default_factory=dict)

    def arrived(self, nr: int, level: int, grad: Tensor) -> None:
        if (known := self.record.known()) is not None:
            known.arrived[self, nr, level] = grad

    def looked_at(self, nr: int, level: int, grad: Tensor | None) -> Tensor | None:
        """The gradient of a shared operand, of the rows that somebody needed."""
        known = self.record.known()
        if known is None or grad is None or is_finite(grad):
            return None
        if known.earlier(None):
            return None  # what the gradient of a gradient gives it has been added to that
        masks = [mask for place in self.places.values() for mask in place.masks(known)]
        along = {
            nr: known.arrived[self, nr, level]
            for nr in self.places
            if (self, nr, level) in known.arrived
        }
        mask = all_of(masks) if masks else None
        if mask is None or not along or mask.all():
            return None
        mask = folded(mask, self.fold)
        if any(mask.shape != (each.shape[self.dim],) for each in along.values()):
            return None
        if not mask.any():
            return torch.zeros_like(grad)
        return self.again(nr, level, along, on_device(mask.nonzero()[0], grad.device))

    def again(self, nr: int, level: int, along: dict[int, Tensor], rows: Tensor) -> Tensor:
        """The gradient of an operand by what has arrived at some rows of the results."""
        operands = [at_level(operand, level) for operand in self.operands]
        given = [
            operand if dim is None else operand.index_select(dim, rows)
            for operand, dim in zip(operands, self.dims, strict=True)
        ]

        def function(shared: Tensor) -> tuple[Tensor, ...]:
            results = parts(self.function(*given[:nr], shared, *given[nr + 1 :]))
            return tuple(results[each] for each in along)

        _, pull, *_ = torch.func.vjp(function, given[nr])
        picked = tuple(each.index_select(self.dim, rows) for each in along.values())
        found: Tensor = pull(picked)[0]
        return found


def parts(results: Any) -> Sequence[Tensor]:
    return (results,) if isinstance(results, Tensor) else results


def at_level(operand: Any, level: int) -> Any:
    """An operand as a graph of that level sees it."""
    while isinstance(operand, Tensor) and is_wrapped(operand) and level_of(operand) > level:
        operand = unwrapped(operand)
    return unwrap_if_dead(operand) if isinstance(operand, Tensor) else operand


def product(
    function: Function,
    dims: Sequence[int | None],
    dim: int,
    fold: Fold,
    *operands: Any,
    **named: Any,
) -> Any:
    record = record_at_work()
    wanted = shared_operands(record, dims, operands)
    if record is None or not wanted:
        return function(*operands, **named)
    record.is_used = True
    whole = partial(function, **named)
    given = list(operands)
    made = Product(record, whole, list(operands), dims, dim, fold)
    for nr in wanted:
        given[nr] = operands[nr].view_as(operands[nr])
        for layer in differentiated(given[nr]):
            hook = partial(made.looked_at, nr, layer.level)
            layer.tensor.register_hook(hook)  # type: ignore[no-untyped-call]
    results = whole(*given)
    for nr, result in enumerate(parts(results)):
        if is_batched_within(result) or not is_in_a_graph(result):
            continue
        made.places[nr] = watch(record, result, dim, False)
        for layer in differentiated(result):
            arrived = partial(made.arrived, nr, layer.level)
            layer.tensor.register_hook(arrived)  # type: ignore[no-untyped-call]
    return results


def product_over(
    function: Function,
    written: Function,
    dims: Sequence[int | None],
    dim: int,
    fold: Fold,
    *operands: Any,
    **named: Any,
) -> Any:
    """The same by ``written``, over the first operand, where nobody comes back to the operands."""
    if shared_operands(record_at_work(), dims, operands):
        return product(function, dims, dim, fold, *operands, **named)
    return written(*operands, **named)


def shared_operands(
    record: Record | None, dims: Sequence[int | None], operands: Sequence[Any]
) -> list[int]:
    """Which operands all threads share and somebody differentiates, where rows may be infinite."""
    if record is None or not torch.is_grad_enabled() or is_saving():
        return []
    wanted = [
        nr
        for nr, (operand, dim) in enumerate(zip(operands, dims, strict=True))
        if dim is None and isinstance(operand, Tensor) and has_views(operand)
        if any(True for _ in differentiated(operand))
    ]
    return wanted if wanted and record.has_wild() else []


def is_batched_within(tensor: Tensor) -> bool:
    """Whether some layer of it is batched: then its rows are not where they seem to be."""
    while is_wrapped(tensor):
        if is_batched(tensor):
            return True
        tensor = unwrapped(tensor)
    return False
