"""Reductions over the rows of packed values: all threads' rows at once.

``x.sum(0)`` of a tensor ``[n, *E]`` adds up the rows of each thread; ``x.sum()`` all they hold. The
largest row, a softmax and the like are those of each thread too. Where torch refuses a tensor of no
rows, so do the threads that have none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from autobatch.batching.applying import needed
from autobatch.batching.context import Context
from autobatch.batching.tables import segments
from autobatch.batching.tables.alike import named
from autobatch.batching.tables.arguments import MISSING, bound, shared
from autobatch.batching.tables.order import together
from autobatch.batching.tables.padding import is_cheap
from autobatch.batching.tables.segments import Segments
from autobatch.batching.tensors import torch_ops
from autobatch.presence.record import wild
from autobatch.values.cells import Cell, Column, Container, read
from autobatch.values.packs import Order, is_packed


@dataclass(frozen=True, slots=True)
class Reduction:
    """``meaning`` of the rows; ``refuses_none`` if torch refuses a tensor of no rows.

    ``names`` are those of the arguments; ``whole`` is what all elements together give, where that
    is another. ``kinds``: ``f`` floats only, ``n`` numbers but no bools, ``b`` all. ``of_a_dim``:
    torch has it of a dimension only; ``one_dim``, not of several. ``pads``: it pads the rows.
    """

    meaning: Callable[[Segments], Tensor | tuple[Tensor, Tensor]]
    names: str = "input dim keepdim"
    refuses_none: bool = False
    whole: Callable[[Segments], Tensor | tuple[Tensor, Tensor]] | None = None
    kinds: str = "f"
    of_a_dim: bool = False
    one_dim: bool = False
    pads: bool = False


def _rules() -> dict[Any, Reduction]:
    norm = "input p dim keepdim"
    rules = {
        "sum": Reduction(segments.added, kinds="b"),
        "mean": Reduction(segments.mean),
        "prod": Reduction(segments.product, kinds="b", one_dim=True, pads=True),
        "logsumexp": Reduction(segments.logsumexp, of_a_dim=True),
        "any": Reduction(segments.has_any, kinds="b"),
        "all": Reduction(segments.has_all, kinds="b"),
        "var": Reduction(segments.var, "input dim unbiased keepdim correction"),
        "std": Reduction(segments.std, "input dim unbiased keepdim correction"),
        "norm": Reduction(segments.norm, norm),
    }
    kinds = (segments.extreme, segments.place, segments.picked)
    for name, largest in (("max", True), ("min", False)):
        found, place, pair = (partial(kind, largest=largest) for kind in kinds)
        rules[f"a{name}"] = Reduction(found, refuses_none=True, kinds="n")
        rules[f"arg{name}"] = Reduction(place, refuses_none=True, kinds="n", one_dim=True)
        rules[name] = Reduction(pair, refuses_none=True, kinds="n", whole=found, one_dim=True)
    table = {
        function: rule for name, rule in rules.items() for function in named(name, torch, Tensor)
    }
    of_ord = Reduction(segments.norm, "input ord dim keepdim")
    return {**table, torch.linalg.vector_norm: of_ord, torch.linalg.norm: of_ord}


REDUCTIONS = _rules()
PAIRS: dict[Any, Any] = {
    **dict.fromkeys((torch.max, Tensor.max), torch.return_types.max),
    **dict.fromkeys((torch.min, Tensor.min), torch.return_types.min),
}


def apply(
    context: Context, function: Any, args: list[Cell], kwargs: dict[str, Cell]
) -> Cell | None:
    """``x.sum()``, ``x.amax(0)``, ``x.softmax(0)`` and the like; None for anything else."""
    pack = read(args[0]) if args else None
    if not context.k or not is_packed(pack):
        return None
    rule = REDUCTIONS.get(function)
    if rule is not None:
        return reduced(context, function, rule, args, kwargs, pack)
    if function in SOFTMAXES:
        return softmax(context, function, args, kwargs, pack)
    return None


def reduced(
    context: Context,
    function: Any,
    rule: Reduction,
    args: list[Cell],
    kwargs: dict[str, Cell],
    pack: Container,
) -> Cell | None:
    given = bound(rule.names.split(), args, kwargs)
    options = None if given is None else {name: shared(given[name]) for name in list(given)[1:]}
    if options is None or MISSING in options.values() or not fits(rule, pack.static.dtype):
        return None
    dims = pack.static.dim()
    dim = options.pop("dim", None)
    whole = dim is None or (
        isinstance(dim, tuple) and sorted(d % dims for d in dim) == [*range(dims)]
    )
    if (whole and rule.of_a_dim) or (rule.one_dim and isinstance(dim, tuple)):
        return None
    keepdim = options.pop("keepdim", False)
    meaning = rule.whole if whole and rule.whole is not None else rule.meaning
    if isinstance(dim, tuple) and len(dim) == 1:
        (dim,) = dim
    if not whole and (type(dim) is not int or dim not in (0, -dims)):
        return None
    if keepdim not in (False, True) or (keepdim and whole) or not understood(options):
        return None
    if "unbiased" in options or "correction" in options:
        if len(options) > 1 or (whole and dim is None and "keepdim" in (given or {})):
            return None
        number = options.get("correction", options.get("unbiased"))
        if number is None:
            number = 1
        meaning = partial(meaning, correction=float(number))  # type: ignore[call-arg]
    table, order = together(context, pack)
    if rule.pads and not is_cheap(order):
        return None
    part = Segments.of(table, order, whole)
    if 0 in part.sizes:
        if rule.refuses_none:
            if whole and dim is not None:
                return None
            refuse_none(context, function, args, kwargs, part)
        wild()  # what has no element has no mean
    found = needed.of_table(function, table, lambda own: meaning(Segments.of(own, order, whole)))
    context.counter.launch()
    return result(function, found, rule, table, bool(keepdim))


def fits(rule: Reduction, dtype: torch.dtype) -> bool:
    if dtype.is_complex or dtype is torch.uint8 or dtype.itemsize == 0:
        return False
    if rule.kinds == "f":
        return dtype.is_floating_point
    return rule.kinds == "b" or dtype is not torch.bool


def understood(options: dict[str, Any]) -> bool:
    """Whether the other arguments are those that the rules know."""
    for name, value in options.items():
        if name == "p" and not (value is None or value == 2 or value == "fro"):
            return False
        if name == "ord" and value is not None:  # of a matrix it is another norm
            return False
        if name == "unbiased" and type(value) is not bool:
            return False
        if name == "correction" and not (value is None or type(value) in (int, float)):
            return False
    return True


def refuse_none(
    context: Context, function: Any, args: list[Cell], kwargs: dict[str, Cell], part: Segments
) -> None:
    """Threads without an element raise what torch raises."""
    names, cells = list(kwargs), [Cell(read(arg)) for arg in (*args, *kwargs.values())]

    def plain(*own: Any) -> Any:
        return function(*own[: len(args)], **dict(zip(names, own[len(args) :], strict=True)))

    context.check(part.counts == 0, lambda row: torch_ops.one_row(context, plain, cells, row))


def result(function: Any, found: Any, rule: Reduction, table: Tensor, keepdim: bool) -> Cell:
    if isinstance(found, tuple):
        parts = [Cell(Column(part.unsqueeze(1) if keepdim else part)) for part in found]
        return Cell(Container(PAIRS[function], parts))
    if found.dtype.is_floating_point and found.dtype is not table.dtype:
        found = found.to(table.dtype)
    return Cell(Column(found.unsqueeze(1) if keepdim else found))


# Softmax

SOFTMAXES: dict[Any, bool] = {
    **dict.fromkeys((torch.softmax, Tensor.softmax, F.softmax), False),
    **dict.fromkeys((torch.log_softmax, Tensor.log_softmax, F.log_softmax), True),
}


def softmax(
    context: Context, function: Any, args: list[Cell], kwargs: dict[str, Cell], pack: Container
) -> Cell | None:
    """``x.softmax(0)``, over each thread's rows."""
    given = bound(["input", "dim"], args, kwargs)
    dim = shared(given["dim"]) if given is not None and "dim" in given else MISSING
    if type(dim) is not int or dim not in (0, -pack.static.dim()):
        return None
    if not pack.static.dtype.is_floating_point:
        return None
    table, order = together(context, pack)
    wide = table.float() if table.dtype.itemsize < 4 else table
    is_log = SOFTMAXES[function]
    found = needed.of_table(function, wide, lambda own: softmax_of(own, order, is_log))
    context.counter.launch()
    return Cell(order.pack(found.to(table.dtype)))


def softmax_of(wide: Tensor, order: Order, is_log: bool) -> Tensor:
    part = Segments.of(wide, order, False)
    with torch.no_grad():
        top = part.extreme(True)
    low = wide - part.spread(top.detach())
    total = part.sum(low.exp()).to(wide.dtype)
    return low - part.spread(total.log()) if is_log else low.exp() / part.spread(total)
