"""Which fast torch function stands for an operator: ``aten.add.Tensor`` → ``torch.add``.

An operator object costs about a microsecond more per call than torch's own Python function.
No table says which function goes with which operator: a candidate of the same name is called
once with fake arguments, and stands for the operator if it dispatches to exactly that operator
with exactly those arguments. The answer holds for all arguments of the same types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import BuiltinFunctionType
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from autobatch.batching.trace.graph import Count, Meta, Node, Ref, Symbol
from autobatch.compat import fake_mode, quiet
from autobatch.modes import DispatchMode
from autobatch.values.attending import FUSED, fused
from autobatch.values.convolving import CONVOLVED, of_rows
from autobatch.values.repeated import bmm

_ATEN = torch.ops.aten
_HOMES = (torch, torch._C._nn, torch._C._linalg, torch._C._special, torch._C._fft, Tensor)  # type: ignore[attr-defined]
_OTHER_NAMES = {_ATEN._to_copy.default: "to"}
# reshape takes any layout that a later input may have, and costs what view does; bmm may get an
# operand that repeats one matrix; gradients of fused attention are to have gradients.
_STAND_INS: Mapping[OpOverload, Callable[..., Any]] = {
    _ATEN.view.default: torch.reshape,
    _ATEN._unsafe_view.default: torch.reshape,
    _ATEN.bmm.default: bmm,
    CONVOLVED: of_rows,
    FUSED: fused,
}


@dataclass(frozen=True, slots=True)
class Example:
    """Values for the symbols of a graph: a thread count, and the inputs that are numbers."""

    count: int
    numbers: Mapping[int, int | float]


@dataclass(frozen=True, slots=True)
class _Call:
    """An operator with the types of its arguments; equal if those are."""

    op: OpOverload
    types: Any
    node: Node = field(compare=False)
    metas: Mapping[int, Meta] = field(compare=False)
    example: Example = field(compare=False)

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Fake arguments of these types; one tensor for each value."""
        made: dict[int, Tensor] = {}
        args = [self.concrete(a, made) for a in self.node.args]
        return args, {name: self.concrete(a, made) for name, a in self.node.kwargs.items()}

    def concrete(self, argument: Any, made: dict[int, Tensor]) -> Any:
        match argument:
            case Ref(value):
                if value not in made:
                    made[value] = self.fake(self.metas[value])
                return made[value]
            case Count(multiple):
                return multiple * self.example.count
            case Symbol(position, offset):
                return self.example.numbers[position] + offset
            case list() | tuple():
                return [self.concrete(item, made) for item in argument]
        return argument

    def fake(self, meta: Meta) -> Tensor:
        shape, stride = (self.concrete(sizes, {}) for sizes in (meta.shape, meta.stride))
        return torch.empty_strided(shape, stride, dtype=meta.dtype, device=meta.device)


def binding(node: Node, metas: Mapping[int, Meta], example: Example) -> Callable[..., Any]:
    """What to call, with the node's own arguments, to run its operator."""
    if node.op in _STAND_INS:
        return _STAND_INS[node.op]
    if any(None in metas[value].shape + metas[value].stride for value in node.reads()):
        return node.op
    given = (node.args, tuple(node.kwargs), tuple(node.kwargs.values()))
    return _binding(_Call(node.op, _types(given, metas), node, metas, example))


@lru_cache(maxsize=4096)
def _binding(call: _Call) -> Callable[..., Any]:
    for candidate in _candidates(call.op):
        if _dispatches_to(candidate, call):
            return candidate
    return call.op


def _candidates(op: OpOverload) -> Iterator[Callable[..., Any]]:
    name = _OTHER_NAMES.get(op, op._schema.name.split("::")[1])
    for home in _HOMES if op.namespace == "aten" else ():
        found = getattr(home, name, None)
        if isinstance(found, (BuiltinFunctionType, type(Tensor.add))):
            yield found


class _Probe(DispatchMode):
    """Notes which operators a candidate dispatches to, with their arguments."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[Any, dict[str, Any]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func.namespace == "aten":
            self.seen.append((func, _by_name(func, args, kwargs or {})))
        return func(*args, **(kwargs or {}))


def _dispatches_to(candidate: Callable[..., Any], call: _Call) -> bool:
    probe = _Probe()
    try:
        with fake_mode(), torch.no_grad(), quiet():
            args, kwargs = call.arguments()
            with probe:
                candidate(*args, **kwargs)
    except Exception:  # whatever a candidate that takes other arguments raises
        return False
    if len(probe.seen) != 1 or probe.seen[0][0] is not call.op:
        return False
    return _same(probe.seen[0][1], _by_name(call.op, args, kwargs))


def _by_name(op: OpOverload, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are not the operator's defaults, by name."""
    arguments = op._schema.arguments
    given = {argument.name: value for argument, value in zip(arguments, args, strict=False)}
    given.update(kwargs)
    defaults = {a.name: a.default_value for a in arguments if a.has_default_value()}
    return {n: v for n, v in given.items() if n not in defaults or not _same(v, defaults[n])}


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[name], b[name]) for name in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return a is b
    return type(a) is type(b) and bool(a == b)


def _types(argument: Any, metas: Mapping[int, Meta]) -> Any:
    """What of an argument decides how torch reads it; names and dtypes stand for themselves."""
    match argument:
        case Ref(value):
            return metas[value].dtype
        case Count():
            return int
        case Symbol():
            return "number"
        case list() | tuple():
            return tuple(_types(item, metas) for item in argument)
        case bool() | int() | float():
            return type(argument)
    return argument
