"""What the patterns of a ``match`` statement take of their subject.

They are lowered to calls of ``frontend.matching``, which only read; the class of a class pattern
comes into the world, and what it asks by name of its instances.
"""

from __future__ import annotations

from torch import Tensor

from autobatch.alone.kinds import NotAlone
from autobatch.alone.taint import NONE, TENSORS, Share, deep
from autobatch.alone.world import World
from autobatch.ir.program import Op, Var
from autobatch.vm.purity import Known

KIND, LENGTH = "class_attributes", "sequence_length"
PATTERNS = frozenset(
    ("autobatch.frontend.matching", 0, (name,))
    for name in (KIND, LENGTH, "mapping_values", "mapping_rest")
)


def is_of_patterns(known: Known, module: Var) -> bool:
    """Whether a variable is the module of the functions that ``match`` is lowered to."""
    definition = known.definitions.get(module)
    return definition is not None and definition.name == "import" and definition.attr in PATTERNS


def pattern(known: Known, callee: Var) -> str | None:
    """The name of a function that ``match`` is lowered to; None for all others."""
    definition = known.definitions.get(callee)
    if definition is None or definition.name != "import_from":
        return None
    return str(definition.attr) if is_of_patterns(known, definition.args[0]) else None


def asks_kind(known: Known, call: Op) -> bool:
    """Whether a call asks if something is an instance of its second argument."""
    callee = call.args[0]
    asks = known.looked_up(callee) is isinstance or pattern(known, callee) == KIND
    return asks and call.attr.is_plain and len(call.args) > 2


def asked_of(world: World, known: Known, args: tuple[Var, ...]) -> set[str]:
    """The attributes that a class pattern asks for; its class comes into the world."""
    kind, names = known.looked_up(args[1]), known.definitions.get(args[3])
    if names is None or not isinstance(kind, type) or issubclass(kind, Tensor):
        raise NotAlone("a pattern of a class that is not known")
    world.met_class(kind)
    consts = map(known.definitions.get, names.args)
    return {op.attr for op in consts if op is not None} | {*getattr(kind, "__match_args__", ())}


def taken(world: World, name: str, whole: Share) -> Share:
    """What a pattern takes of what has the share ``whole``."""
    if name == LENGTH:
        return NONE
    if name == KIND:
        whole &= ~TENSORS  # a tensor is an instance of none of them
    else:
        world.shares.contain(deep(whole))
    return world.shares.within(whole) | whole
