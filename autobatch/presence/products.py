"""Products of rows with a tensor that all threads share, a matrix product or a convolution say.

Its gradient is one sum over all rows, and zero times a row that is infinite is nan: that can not be
told from what the others give. So where it comes out not finite, it is taken once more of the rows
that somebody needed, in whichever graph that is. A gradient that may itself be differentiated is
taken of these rows whatever it is, but where all is sure to stay finite: it then leaves by a graph
of its own, beside the product, since what a backward of that gives an operand could not be told
from what the product gives it.

In: a function, and its operands; ``dims`` says where the rows of each are, None for what is shared.
Out: what the function gives, and a gradient of what is shared that only such rows have a part in.
The function may be any that draws nothing: a cell of a recurrent network is a product like others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.compat import is_batched, is_wrapped, level_of, on_device, unwrap_if_dead, unwrapped
from autobatch.presence.guards import Fold, folded, watch
from autobatch.presence.known import Known, Place
from autobatch.presence.layers import differentiated, is_in_a_graph
from autobatch.presence.masks import all_of, is_nothing
from autobatch.presence.operands import Operands, operands_of
from autobatch.presence.record import Record, has_views, is_finite, may_spoil, record_at_work
from autobatch.presence.risks import is_bare_norm, name_of
from autobatch.saving.savers import decided, is_again

FACTORS = frozenset(
    """addmm addmv affine baddbmm bilinear bmm conv1d conv2d conv3d convolution einsum
 conv_transpose1d conv_transpose2d conv_transpose3d group_norm layer_norm linear matmul mm mv
 native_layer_norm prelu prelu_kernel rms_norm trilinear weighted
 Bilinear Conv1d Conv2d Conv3d GRU GRUCell GroupNorm LayerNorm Linear LSTM LSTMCell PReLU RNN
 RNNCell""".split()  # noqa: SIM905
)
"""Their gradients hold their operands."""
Function = Callable[..., Any]
Along = dict[int, Tensor]
"""What has arrived at the results, by number."""


@dataclass(slots=True, eq=False, repr=False)
class Product:
    """``function(*operands)``, whose rows are in dimension ``dim`` of the results, folded so.

    ``is_factor``: all its derivatives are finite where its operands are. ``smooth`` are the
    operands that are differentiated, by the level of the graph, ``places`` of the results that are.
    """

    record: Record
    function: Function
    operands: Operands
    dims: Sequence[int | None]
    dim: int
    fold: Fold
    is_factor: bool
    smooth: dict[int, list[int]] = field(default_factory=dict)
    places: dict[int, Place] = field(default_factory=dict)

    def arrived(self, nr: int, level: int, grad: Tensor) -> None:
        if (known := self.record.known()) is not None:
            known.arrived[self, nr, level] = grad

    def looked_at(self, nr: int, level: int, grad: Tensor | None) -> Tensor | None:
        """The gradient of an operand, of the rows that somebody needed; None: as it is."""
        known, is_right = self.record.known(), self.dims[nr] is not None
        if known is None or grad is None:
            return None
        if not torch.is_grad_enabled() and (is_right or is_finite(grad)):
            return None
        if not (along := self.along(known, level)):
            return None
        if torch.is_grad_enabled() and self.is_below(level, along):
            found = self.anew(known, level, along)
            if found is not None:
                return found[nr]
        if is_right or is_finite(grad):
            return None
        rows = self.needed(known, along, grad.device)
        if rows is None:
            return None
        return self.pulled(level, along, rows, [nr])[nr] if len(rows) else torch.zeros_like(grad)

    def along(self, known: Known, level: int) -> Along:
        keys = ((nr, (self, nr, level)) for nr in self.places)
        return {nr: known.arrived[key] for nr, key in keys if key in known.arrived}

    def needed(self, known: Known, along: Along, device: torch.device) -> Tensor | None:
        """Which rows somebody needed; None: all of them, or it cannot be told."""
        masks = [mask for place in self.places.values() for mask in place.masks(known)]
        mask = all_of(masks) if masks else None
        if is_nothing(mask):
            return on_device(np.zeros(0, np.int64), device)
        if mask is None or mask.all():
            return None
        mask = folded(mask, self.fold)
        if any(mask.shape != (each.shape[self.dim],) for each in along.values()):
            return None
        return on_device(mask.nonzero()[0], device)

    def is_below(self, level: int, along: Along) -> bool:
        """Whether some graph below that level may differentiate its gradients."""
        if not level:
            return True
        tensors = [each for each in self.operands.all() if isinstance(each, Tensor)]
        layers = (layer for each in (*along.values(), *tensors) for layer in differentiated(each))
        return any(layer.level < level for layer in layers)

    def anew(self, known: Known, level: int, along: Along) -> dict[int, Tensor] | None:
        """The gradients of all operands by a graph of their own; None where none is called for."""
        key = (self, level, tuple(along))
        if key not in known.arrived:
            known.arrived[key] = self.beside(known, level, along)
        found: dict[int, Tensor] | None = known.arrived[key]
        return found

    def beside(self, known: Known, level: int, along: Along) -> dict[int, Tensor] | None:
        smooth = self.smooth[level]
        if len(set(smooth)) != len(smooth):
            return None  # there are tangents in the same graph
        operands = [each for each in self.operands.all() if is_smooth(each)]
        if self.is_factor and all(map(is_finite, operands)):
            return None
        rows = self.needed(known, along, next(iter(along.values())).device)
        return self.pulled(level, along, rows, smooth)

    def pulled(
        self, level: int, along: Along, rows: Tensor | None, smooth: Sequence[int]
    ) -> dict[int, Tensor]:
        """The gradients of some operands, by what has arrived at some rows of the results."""
        operands = [at_level(operand, level) for operand in self.operands.all()]

        def taken(operand: Any, dim: int | None) -> Any:
            return operand if rows is None or dim is None else operand.index_select(dim, rows)

        def function(*changed: Tensor) -> tuple[Tensor, ...]:
            given = dict(enumerate(operands)) | dict(zip(smooth, changed, strict=True))
            of_rows = [taken(given[nr], dim) for nr, dim in enumerate(self.dims)]
            results = parts(self.function(*of_rows))
            return tuple(results[nr] for nr in along)

        _, pull, *_ = torch.func.vjp(function, *(operands[nr] for nr in smooth))
        gradients = pull(tuple(taken(each, self.dim) for each in along.values()))
        return dict(zip(smooth, gradients, strict=True))


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
    """``function(*operands, **named)``, one of ``FACTORS``."""
    if not is_watched(dims, operands):
        return function(*operands, **named)
    is_factor = not is_bare_norm(name_of(function), operands, named)
    return watched(partial(function, **named), dims, dim, fold, operands, is_factor)


def watched(
    function: Function,
    dims: Sequence[int | None],
    dim: int,
    fold: Fold,
    operands: Sequence[Any],
    is_factor: bool,
) -> Any:
    """``function(*operands)``, whose gradients are looked at; ``is_factor``: as in ``Product``."""
    known, record, given = operands_of(operands), record_at_work(), list(operands)
    if record is None or is_again():
        return function(*operands)
    record.is_used = True
    made = Product(record, function, known, dims, dim, fold, is_factor)
    for nr, operand in enumerate(operands):
        if not is_differentiated(operand):
            continue
        given[nr] = operand.view_as(operand)
        for layer in differentiated(given[nr]):
            made.smooth.setdefault(layer.level, []).append(nr)
            hook = partial(made.looked_at, nr, layer.level)
            layer.tensor.register_hook(hook)  # type: ignore[no-untyped-call]
    results = function(*given)
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
    if is_watched(dims, operands):
        return watched(partial(function, **named), dims, dim, fold, operands, True)
    return written(*operands, **named)


def is_watched(dims: Sequence[int | None], operands: Sequence[Any]) -> bool:
    """Whether somebody differentiates what all threads share, and rows may be infinite."""
    return decided(partial(may_be_spoilt, dims, operands))


def may_be_spoilt(dims: Sequence[int | None], operands: Sequence[Any]) -> bool:
    shared = (each for each, dim in zip(operands, dims, strict=True) if dim is None)
    return any(map(is_differentiated, shared)) and may_spoil()


def is_differentiated(operand: Any) -> bool:
    return isinstance(operand, Tensor) and has_views(operand) and is_in_a_graph(operand)


def is_smooth(operand: Any) -> bool:
    return isinstance(operand, Tensor) and (operand.is_floating_point() or operand.is_complex())


def is_batched_within(tensor: Tensor) -> bool:
    """Whether some layer of it is batched: then its rows are not where they seem to be."""
    while is_wrapped(tensor):
        if is_batched(tensor):
            return True
        tensor = unwrapped(tensor)
    return False
