"""Whether a program can see how its tensors lie in memory.

Two threads may have tensors of one shape that lie differently: ``x.t()`` here, ``x * 2`` there.
They run together, unless the program goes by that: it asks for the strides, or for a view that
only some layouts have; or it writes to tensors, and asks for what is a view of one layout and a
copy of another (``reshape``). What is named is enough: nobody need call it.

In: a lowered function, what its names mean, the same for the functions that it names, and what it
is given. Out: an ``Asks``; what is not known asks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from torch import nn

from autobatch.batching.effects import belongs_to_torch, effect_of
from autobatch.batching.marking import custom_function
from autobatch.frontend import MISSING
from autobatch.ir.program import Call, Op, Var
from autobatch.structure import own_attribute
from autobatch.vm.aliasing import callee_of, names_of
from autobatch.vm.purity import Known, Names

EITHER = frozenset(
    {
        *("reshape", "reshape_as", "flatten", "ravel", "contiguous", "Flatten", "Unflatten"),
        *("expand", "expand_as", "broadcast_to", "broadcast_tensors", "meshgrid", "unfold"),
        *("pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "PixelShuffle", "PixelUnshuffle"),
        *("sum_to_size", "resolve_conj", "resolve_neg", "ChannelShuffle"),
    }
)
"""What is a view of one layout and a copy of another; what repeats elements, which none may write.
"""
LAYOUTS = frozenset(
    {
        *("view", "view_as", "view_as_real", "view_as_complex", "stride", "is_contiguous"),
        *("storage_offset", "as_strided", "is_conj", "is_neg", "is_set_to", "data_ptr"),
        *("storage", "untyped_storage", "resize_", "set_", "memory_format", "channels_last"),
        *("contiguous_format", "preserve_format", "__array_interface__", "strides", "getattr"),
        *("methodcaller", "attrgetter", "is_non_overlapping_and_dense", "dim_order"),
    }
)
"""What shows a layout, or is an error for some; and what may call it by a name made at run time."""
NAMING = ("global", "load_free", "getattr", "import_from", "const", "function")
"""Operations that give what may be called."""


class Asks(IntEnum):
    """When a program sees layouts: it never does, or if it writes to tensors, or it does."""

    NEVER = 0
    IF_IT_WRITES = 1
    ALWAYS = 2


@dataclass(eq=False, repr=False)
class Asking:
    """One function. ``callee`` judges what is known to be named; ``is_opaque`` says whether a
    method of that name is a tensor's or a builtin's.
    """

    known: Known
    callee: Callable[[object], Asks]
    is_opaque: Callable[[str], bool]

    def asks(self) -> Asks:
        found = Asks.NEVER
        for block in self.known.function.blocks:
            for op in block.ops:
                found = max(found, self.of_op(op))
                if found is Asks.ALWAYS:
                    return found
            if type(block.terminator) is Call:
                found = max(found, self.of_call(block.terminator.callee))
        return found

    def of_op(self, op: Op) -> Asks:
        if op.name in ("call", "fork", "defer"):
            return self.of_call(op.args[0]) if op.name == "call" else Asks.NEVER
        if op.name not in NAMING:
            return Asks.NEVER
        found = callee_of(self.known, op.outs[0])
        judged = Asks.NEVER if found is MISSING else self.callee(found)
        return max(judged, of_name(op.attr) if op.name == "getattr" else Asks.NEVER)

    def of_call(self, callee: Var) -> Asks:
        """What is known has been judged where it was named."""
        if callee_of(self.known, callee) is not MISSING:
            return Asks.NEVER
        method = self.known.method(callee)
        return Asks.NEVER if method is not None and self.is_opaque(method[1]) else Asks.ALWAYS


def of_name(name: object) -> Asks:
    if name in LAYOUTS:
        return Asks.ALWAYS
    return Asks.IF_IT_WRITES if name in EITHER else Asks.NEVER


def of_opaque(callee: object) -> Asks:
    """The same of what runs no code of the program's."""
    if isinstance(callee, nn.Module):
        return max(of_name(type(part).__name__) for part in callee.modules())
    if isinstance(callee, partial):
        return of_opaque(callee.func)
    if custom_function(callee) is not None:
        return Asks.ALWAYS  # it has code of its own, and so have custom operators
    if type(callee).__module__ == "torch._ops" and not str(callee).startswith("aten."):
        return Asks.ALWAYS
    effect = effect_of(callee)
    if effect == "host" or belongs_to_torch(callee):
        return of_name(own_attribute(callee, "__name__", ""))
    module = own_attribute(callee, "__module__", None) or "builtins"
    return Asks.NEVER if module.partition(".")[0] in sys.stdlib_module_names else Asks.ALWAYS


@dataclass(slots=True, eq=False, repr=False)
class Seeing:
    """Whether a run sees layouts, found out when that is first asked.

    ``asks`` judges its first function, by what its ``names`` mean; ``given`` are the objects that
    it is given besides tensors and numbers, None where they cannot be told; ``blind`` says whether
    it sees no tensor written.
    """

    asks: Callable[[Names], Asks]
    names: Callable[[], Names]
    given: list[object] | None
    blind: Callable[[], bool]
    found: bool | None = None

    def __call__(self) -> bool:
        if self.found is None:
            asks = self.judged()
            self.found = asks is Asks.ALWAYS or (asks is Asks.IF_IT_WRITES and not self.blind())
        return self.found

    def judged(self) -> Asks:
        if self.given is None or any(names_of(obj) is None for obj in self.given):
            return Asks.ALWAYS
        return self.asks(self.names())
