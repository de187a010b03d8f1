"""Operations on packed values that treat each row of the tensors alike: once, on the table.

``embedding(x)``, ``linear(x)``, ``x * 2 + bias``, ``torch.tanh(x)`` and the like give, for a tensor
``[n, *E]``, as many rows, each from one row. So all threads' rows are brought together (nothing is
copied where the table holds them and nothing else) and the function runs on them at once; what it
gives is packed again. A tensor or number of each thread's own, as in ``x - centre``, is repeated
for the rows that it meets. The numbers of the rows are read on the host, once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autobatch.batching import compat, modules
from autobatch.batching.context import Context
from autobatch.batching.submodules import parts_of
from autobatch.batching.trees import weak
from autobatch.vm import packs
from autobatch.vm.packs import is_packed
from autobatch.vm.values import Cell, Column, Container, Uniform, read

_UNARY = (
    "abs ceil cos cosh digamma erf erfc erfinv exp exp2 expm1 floor frac isfinite isinf isnan "
    "lgamma log log10 log1p log2 logical_not neg reciprocal relu round rsqrt sigmoid sign sin sinh "
    "sqrt square tan tanh trunc bitwise_not clamp"
)
_CASTS = "float double half bfloat16 long int bool"
_BINARY = (
    "add sub mul div true_divide floor_divide remainder fmod pow maximum minimum atan2 eq ne lt le "
    "gt ge logical_and logical_or logical_xor"
)
_OPERATORS = "add sub mul truediv floordiv mod pow eq ne lt le gt ge neg invert and_ or_ xor"
_ACTIVATIONS = "relu relu6 gelu silu elu selu celu mish softplus leaky_relu hardtanh logsigmoid"


def _named(names: str, *owners: Any) -> frozenset[Any]:
    return frozenset(getattr(owner, name) for owner in owners for name in names.split())


ELEMENTWISE = (
    _named(f"{_UNARY} {_BINARY}", torch, Tensor)
    | _named(_CASTS, Tensor)
    | _named(_OPERATORS, operator)
    | _named(_ACTIVATIONS, F)
)
PRODUCTS: frozenset[Any] = _named("matmul", operator, torch, Tensor)
ACTIVATIONS = (
    *(nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.ELU, nn.SELU, nn.CELU, nn.Mish, nn.Softplus),
    *(nn.LeakyReLU, nn.Hardtanh, nn.LogSigmoid, nn.Tanh, nn.Sigmoid),
)


def apply(
    context: Context, function: Callable[..., Any], args: list[Cell], kwargs: dict[str, Cell]
) -> Cell | None:
    """``function`` on all threads' rows at once; None where it does not treat each row alike."""
    values = [read(arg) for arg in args]
    named = {name: read(arg) for name, arg in kwargs.items()}
    given = [value for value in values if is_packed(value)]
    others = [value for value in (*values, *named.values()) if not is_packed(value)]
    kinds = {Uniform, Column} if function in ELEMENTWISE else {Uniform}
    plain = {type(value) for value in others} <= kinds and Column not in map(type, named.values())
    if not given or not plain or any(map(is_packed, named.values())) or not context.k:
        return None
    if not treats_rows_alike(function, values):
        return None
    together = brought_together(context, given)
    if together is None:
        return None
    tables, begins, lengths = together
    rest = iter(tables)
    operands = [next(rest) if is_packed(v) else beside(v, tables[0], lengths) for v in values]
    try:
        out = function(*operands, **{name: value.obj for name, value in named.items()})  # type: ignore[union-attr]
    except Exception:  # whose it is, single threads tell
        return None
    if shares_memory(out, operands) or out.shape[:1] != tables[0].shape[:1]:
        return None
    context.counter.launch()
    longest = read(packs.length(given[0])).bounds[1]  # type: ignore[union-attr, index]
    return Cell(packs.pack(out, begins, lengths, longest))


def treats_rows_alike(function: Any, values: list[Any]) -> bool:
    """Whether each row of the result comes from that row of the packed operands."""
    first = values[0]
    if isinstance(function, nn.Module):
        only = len(values) == 1 and is_packed(first)
        hooked = any(map(modules.has_hooks, parts_of(function)))
        return only and not hooked and by_rows(function, first)
    if function is F.embedding:
        return is_packed(first) and not any(map(is_packed, values[1:])) and len(values) == 2
    if function in PRODUCTS or function is F.linear:
        weight = values[1].obj if type(values[1]) is Uniform else None
        flat = isinstance(weight, Tensor) and weight.dim() == 2
        return is_packed(first) and first.static.dim() >= 2 and flat
    if function not in ELEMENTWISE:
        return False
    dims = [value.static.dim() for value in values if is_packed(value)]
    shared = [v.obj.dim() for v in values if type(v) is Uniform and isinstance(v.obj, Tensor)]
    own = [len(value.event_shape) for value in values if type(value) is Column]
    return len(set(dims)) == 1 and max([*shared, *own], default=-1) < dims[0]


def beside(value: Any, table: Tensor, lengths: Tensor) -> Any:
    """An operand that is not packed, as it meets the rows of the table: a thread's own for each.

    In the dtype that it takes where it is one number, for one example.
    """
    if type(value) is not Column:
        return value.obj
    data = value.data
    if value.tag != "tensor":
        data = weak(value, table.dtype)
    elif data.dim() == 1:
        data = data.to(torch.result_type(table, data[0]))
    owner = packs.owners(lengths, table.shape[0])
    rows = data.index_select(0, owner)
    return rows.reshape(-1, *[1] * (table.dim() - rows.dim()), *rows.shape[1:])


def by_rows(module: nn.Module, pack: Container) -> bool:
    dims: int = pack.static.dim()
    if type(module) is nn.Sequential:
        known = all(type(part) in (nn.Linear, *ACTIVATIONS) for part in module)
        return known and dims >= 2
    if type(module) is nn.Embedding:
        return module.max_norm is None
    if type(module) is nn.LayerNorm:
        return len(module.normalized_shape) < dims
    return type(module) in ACTIVATIONS or (type(module) is nn.Linear and dims >= 2)


def brought_together(
    context: Context, given: list[Container]
) -> tuple[list[Tensor], Tensor, Tensor] | None:
    """The rows of all threads one after the other, for each packed value of the same lengths."""
    parts = [packs.parts_of(pack) for pack in given]
    if not all(type(step) is int for _, _, step in parts):
        return None
    numbers = torch.stack([column for begins, lengths, _ in parts for column in (begins, lengths)])
    read_: list[list[int]] = context.host(numbers, "packed rows")
    sizes = read_[1]
    if any(other != sizes for other in read_[1::2]):
        return None
    firsts = [0, *accumulate(sizes)]
    total = firsts.pop()
    lengths = parts[0][1]
    begins = torch.tensor(firsts, dtype=torch.int64, device=lengths.device)
    tables: list[Tensor] = []
    for pack, (start, _, step), own in zip(given, parts, read_[::2], strict=True):
        table = pack.static
        if step != 1 or own != firsts or table.shape[0] != total:
            owner = packs.owners(lengths, total)
            place = torch.arange(total, device=lengths.device) - begins[owner]
            table = table.index_select(0, start[owner] + place * step)
        tables.append(table)
    return tables, begins, lengths


def shares_memory(out: Any, operands: list[Any]) -> bool:
    """Whether the result is, or may be, a part of an operand."""
    if not isinstance(out, Tensor) or not out.dim() or out.layout is not torch.strided:
        return True
    known = {compat.storage_id(part) for part in operands if isinstance(part, Tensor)}
    return compat.storage_id(out) in known
