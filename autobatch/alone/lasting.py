"""What functions return that keep their results for all calls: ``functools.lru_cache``.

In: such a function, and the variable that it returns. Out: what that shares with other threads:
it may be anything that existed before, but where nobody can write to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from types import FunctionType

from autobatch.alone.contents import SCALARS
from autobatch.alone.kept import is_keeping
from autobatch.alone.kinds import NotAlone
from autobatch.alone.taint import ARRAY, NONE, OUTER_DEEP, TENSORS, Share, Unit
from autobatch.alone.world import World
from autobatch.frontend import MISSING
from autobatch.ir.ops import BINARY, COMPARE, UNARY
from autobatch.ir.program import Block, Call, Op, Var
from autobatch.vm.purity import Known

# fmt: off
VALUES = frozenset({
    *(abs, all, any, ascii, bin, bool, chr, complex, divmod, float, format, hash, hex, int, len),
    *(oct, ord, pow, range, repr, round, str, isinstance),
    *(found for name, found in vars(math).items() if name[0] != "_" and callable(found)),
})
"""Functions of Python's that give numbers and texts, whatever they get."""
_METHODS = (
    "bit_length capitalize center count endswith find index isalnum isalpha isdigit islower isspace"
    " isupper join ljust lower lstrip replace rfind rjust rstrip startswith strip swapcase title"
    " upper zfill"
)
METHODS = frozenset(_METHODS.split())
"""Methods of Python's that do so."""
FINE = frozenset({"__init__", "__post_init__", "__repr__", "__str__", "__enter__", "__exit__"})
"""Special methods of a class that are called neither by operators nor by what keeps results."""
# fmt: on


def returned(world: World, unit: Unit, known: Known, name: Var) -> Share:
    """What a function returns in a variable, which is like what existed before if it is kept."""
    share = unit.of.get(name, NONE)
    if not unit.is_kept:
        return share
    if share & TENSORS:
        raise NotAlone("a tensor is kept for other threads")
    if name in Values(world, unit, known).found():
        return share
    if world.yields:
        raise NotAlone("a generator may be kept for other threads")
    return share | OUTER_DEEP | (ARRAY if world.arrays else NONE)


@dataclass(frozen=True, slots=True)
class Values:
    """Which variables hold what nobody can write to, if all parameters do: they are hashable."""

    world: World
    unit: Unit
    known: Known

    def found(self) -> set[Var]:
        """The greatest set of variables of which each assignment gives such a value."""
        if self.world.arrays or any(map(self.is_active, self.world.classes)):
            return set()
        blocks = self.unit.function.blocks
        names = {param.name for param in self.unit.function.params if "var_" not in param.kind}
        names |= {out for block in blocks for op in block.ops for out in op.outs}
        names |= {b.terminator.out for b in blocks if isinstance(b.terminator, Call)}
        names -= {b.handler.out for b in blocks if b.handler is not None}
        before = len(names) + 1
        while len(names) < before:
            before = len(names)
            for block in blocks:
                self.past(block, names)
        return names

    def is_active(self, kind: type) -> bool:
        """Whether operators call methods of a class, or its instances may be equal."""
        return not issubclass(kind, Enum | BaseException) and any(
            name[:2] == "__" and name not in FINE and isinstance(member, FunctionType)
            for name, member in self.world.classes[kind].items()
        )

    def past(self, block: Block, names: set[Var]) -> None:
        """Take out what a block assigns to something else."""
        for op in block.ops:
            if not self.gives(op, names):
                names.difference_update(op.outs)
        end = block.terminator
        if isinstance(end, Call) and not self.calls(end.callee, end.args, names):
            names.discard(end.out)

    def gives(self, op: Op, names: set[Var]) -> bool:
        name = op.name
        if name in COMPARE or name in ("truth", "format", "join", "sum_begun", "sum_lost"):
            return True
        if name in BINARY or name in UNARY or name in ("tuple", "copy", "iter", "next"):
            return names.issuperset(op.args)
        if name == "select":
            return names.issuperset(op.args[1:])
        if name in ("sum_left", "sum_whole"):
            return op.args[0] in names
        if name == "getitem":
            return op.args[0] in names
        if name == "const":
            return type(op.attr) in SCALARS
        if name == "global":
            return type(self.known.looked_up(op.outs[0])) in SCALARS
        return name == "call" and self.calls(op.args[0], op.args[1:], names)

    def calls(self, callee: Var, args: tuple[Var, ...], names: set[Var]) -> bool:
        found, method = self.known.looked_up(callee), self.known.method(callee)
        if found is MISSING:
            own = method is None or self.world.called_by_name(method[1])
            return not own and method is not None and self.is_value(method[1])
        if is_keeping(found):
            return True  # what it gives says so itself
        if found in (min, max):
            return len(args) > 1 and names.issuperset(args)
        return found in VALUES or (found is sum and len(args) == 1)

    def is_value(self, name: str) -> bool:
        held = name in self.world.assigned or self.world.has_field(name)
        return name in METHODS and not held
