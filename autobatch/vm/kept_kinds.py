"""Which kinds of values the attributes of instances and the entries of dicts ever have.

    state = State(x)          n of an instance: a number (its default), and what is assigned to it
    state.n += 1              so this writes to no tensor

Of a function that makes them: to any other they are not known, and who assigns to those is taken to
tell (``aliasing``). So all that a function's own ever have is what the function puts there; it
goes by names and keys, whichever instance or dict of the function's has them.

In: an operation, and the kinds of its operands so far. Out: what it puts where, and what it reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MemberDescriptorType

from autobatch.batching.effects import effect_of
from autobatch.batching.objects.classes import holds_alone
from autobatch.ir.definitions import Definitions
from autobatch.ir.ops import INPLACE
from autobatch.ir.program import CallShape, Op, Var

INSTANCE, DICT = "instance", "dict"
NUMBERS = (bool, int, float, complex)
Kept = tuple[str, object]
"""An attribute of instances, or an entry of dicts, by its name or key."""
ANY: Kept = (DICT, None)
"""An entry under a key that is no literal."""
LOOKING = frozenset({"get", "keys", "values", "items", "copy"})
"""Methods of dicts that put nothing there."""


def is_holder(callee: object) -> bool:
    """Whether it is a class of the program's, whose instances only have attributes."""
    return isinstance(callee, type) and effect_of(callee) == "program" and holds_alone(callee)


def puts(
    op: Op,
    kinds: Sequence[str],
    definitions: Definitions,
    callee: object,
    method: tuple[str, str] | None,
) -> Iterator[tuple[Kept, str]]:
    """What an operation puts where; a call of ``callee``, or of a ``method`` of a kind."""
    if op.name == "setattr" and kinds[0] == INSTANCE:
        yield (INSTANCE, op.attr), kinds[1]
    elif op.name == "dict":
        for key, kind in zip(op.args[::2], kinds[1::2], strict=True):
            yield entry(key, definitions), kind
    elif op.name == "setitem" and kinds[0] == DICT:
        yield entry(op.args[1], definitions), kinds[2]
    elif op.name == "update" or (op.name in INPLACE and kinds[0] == DICT):
        yield ANY, ""
    elif op.name == "call" and is_holder(callee):
        yield from made(callee, kinds[1:], op.attr)
    elif op.name == "call" and (callee is dict or is_filled(method)):
        yield ANY, ""


def is_filled(method: tuple[str, str] | None) -> bool:
    """Whether a method of a kind may put something into a dict."""
    return method is not None and method[0] == DICT and method[1] not in LOOKING


def made(kind: object, kinds: Sequence[str], shape: CallShape) -> Iterator[tuple[Kept, str]]:
    """What an instance of a class has that a call with operands of such kinds makes, or reads of
    the class as long as nothing is assigned.
    """
    for each in kind.__mro__:  # type: ignore[attr-defined]
        for name, value in vars(each).items():
            if not name.startswith("__") and type(value) is not MemberDescriptorType:
                yield (INSTANCE, name), "number" if type(value) in NUMBERS else ""
    if not dataclasses.is_dataclass(kind):
        return
    fields = dataclasses.fields(kind)
    names = [field.name for field in fields if field.init and not field.kw_only]
    given = [*names[: len(shape.positional)], *shape.keywords]
    has = dict(zip(given, kinds, strict=False)) if shape.is_plain else {}
    for field in fields:
        default = "number" if type(field.default) in NUMBERS else ""
        yield (INSTANCE, field.name), has.get(field.name, default) if shape.is_plain else ""


def entry(key: Var, definitions: Definitions) -> Kept:
    found = definitions.get(key)
    is_literal = found is not None and found.name == "const"
    if is_literal and type(found.attr) in (str, int):  # type: ignore[union-attr]
        return DICT, found.attr  # type: ignore[union-attr]
    return ANY


def read(op: Op, kind: str, definitions: Definitions, kept: Mapping[Kept, str]) -> Iterable[str]:
    """The kinds of what an operation may read of an operand of a kind; none if it reads nothing
    that is kept so.
    """
    if op.name == "getattr" and kind == INSTANCE:
        return [kept.get((INSTANCE, op.attr), "unseen")]
    if op.name != "getitem" or kind != DICT:
        return []
    key = entry(op.args[1], definitions)
    if key == ANY:
        return [each for (of, _), each in kept.items() if of == DICT] or ["unseen"]
    return [kept.get(key, "unseen"), kept.get(ANY, "unseen")]


def names_of_fields(kind: object) -> frozenset[str]:
    """The attributes that instances of a class begin with."""
    if not dataclasses.is_dataclass(kind):
        return frozenset()
    return frozenset(field.name for field in dataclasses.fields(kind))
