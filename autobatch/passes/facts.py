"""What is known of variables at each point: the literal that one holds, or whose copy it is.

In: blocks, and the facts at their entry. Out: for each the facts at its start (``facts_before``),
and a way to take them through its operations one by one (``after``). A literal is None, a bool, an
int that fits into 64 bits, a float that is no NaN, or a string; two are the same where type and
text are, so that 1, 1.0 and True, or 0.0 and -0.0, are kept apart. Only Python's own arithmetic on
numbers is computed, and only where it does not fail: what fails is left to fail as the program
runs (Kildall 1973, "A unified approach to global program optimization").
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autobatch.ir.dataflow import Analysis, op_writes, solve, terminator_writes
from autobatch.ir.ops import INPLACE
from autobatch.ir.program import Block, Op, Var

LITERALS = (type(None), bool, int, float, str)
NUMBERS = (bool, int, float)
_WIDEST, _LONGEST, _HIGHEST = 63, 100, 64


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal by its type and text; ``value`` is it."""

    kind: str
    text: str

    @property
    def value(self) -> Any:
        return _VALUES[self.kind](self.text)

    @classmethod
    def of(cls, value: object) -> Literal | None:
        kind = type(value)
        if kind not in LITERALS or (isinstance(value, str) and len(value) > _LONGEST):
            return None
        if isinstance(value, int) and value.bit_length() > _WIDEST:
            return None
        if value != value:
            return None  # a NaN has bits that its text does not tell
        return cls(kind.__name__, value if isinstance(value, str) else repr(value))


_VALUES: dict[str, Callable[[str], Any]] = {
    "NoneType": lambda text: None,
    "bool": lambda text: text == "True",
    "int": int,
    "float": float,
    "str": str,
}


@dataclass(frozen=True, slots=True)
class Same:
    """The value of another variable."""

    source: Var


Facts = Mapping[Var, Literal | Same]
NOTHING: Facts = {}


def facts_before(blocks: Sequence[Block], given: Facts = NOTHING) -> Sequence[Facts]:
    """What is known at the start of each block; nothing of one that is never reached.

    ``given`` is known at the entry.
    """
    analysis: Analysis[Facts | None] = Analysis(True, given, None, joined_facts, _through, _raised)
    return [NOTHING if fact is None else fact for fact in solve(blocks, analysis).before]


def joined_facts(one: Facts | None, other: Facts | None) -> Facts | None:
    if one is None or other is None:
        return other if one is None else one
    return {name: known for name, known in one.items() if other.get(name) == known}


def _through(block: Block, facts: Facts | None) -> Facts | None:
    return None if facts is None else facts_after(block, facts)


def facts_after(block: Block, facts: Facts) -> Facts:
    """What is known at the end of a block."""
    course = Course(facts)
    for op in block.ops:
        course.take(op)
    course.forget(terminator_writes(block.terminator))
    return course.facts


def _raised(block: Block, facts: Facts | None) -> Facts | None:
    """At a handler, wherever the block has failed."""
    assert block.handler is not None
    written = {name for op in block.ops for name in op_writes(op)}
    written.update(terminator_writes(block.terminator), (block.handler.out,))
    return None if facts is None else unwritten(facts, written)


def unwritten(facts: Facts, written: Sequence[Var] | set[Var]) -> Facts:
    """The facts that still hold once variables are written."""
    if not written:
        return facts
    return {
        name: known
        for name, known in facts.items()
        if name not in written and not (isinstance(known, Same) and known.source in written)
    }


def after(op: Op, facts: Facts) -> Facts:
    """What is known after an operation."""
    course = Course(facts)
    course.take(op)
    return course.facts


class Course:
    """Facts on their way through a block: ``facts`` are those at the place that it has come to.

    They change in place, since most operations write what nothing is known of: a new mapping for
    each took a third of the time of folding.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = dict(facts)
        self._sources = {each.source for each in facts.values() if isinstance(each, Same)}

    def take(self, op: Op) -> None:
        """Go past an operation."""
        known = result(op, self.facts)
        self.forget(op_writes(op))
        if known is None:
            return
        if isinstance(known, Same):
            if known.source == op.outs[0]:
                return
            self._sources.add(known.source)
        self.facts[op.outs[0]] = known

    def forget(self, written: Sequence[Var]) -> None:
        """Go past where variables are written."""
        if self._sources.isdisjoint(written):
            for name in written:
                self.facts.pop(name, None)
        else:
            self.facts = dict(unwritten(self.facts, written))
            self._sources.difference_update(written)


def result(op: Op, facts: Facts) -> Literal | Same | None:
    """What an operation gives, if that is known."""
    match op.name:
        case "const":
            return Literal.of(op.attr)
        case "copy":
            return facts.get(op.args[0], Same(op.args[0]))
    given = [facts.get(arg) for arg in op.args]
    literals = [each for each in given if isinstance(each, Literal)]
    if len(literals) < len(given) or not literals:
        return None
    return computed(op.name, [literal.value for literal in literals])


def computed(name: str, values: Sequence[Any]) -> Literal | None:
    """What an operator gives for literals; None where it fails, or is none of those computed."""
    if name in ("not", "truth"):
        return Literal.of(bool(values[0]) is (name == "truth"))
    if name in ("is", "is_not"):
        return _identical(name, *values)
    rule = _RULES.get(name.removeprefix("i") if name in INPLACE else name)
    if rule is None or not _fit(name, values):
        return None
    try:
        return Literal.of(rule(*values))
    except (ArithmeticError, ValueError, TypeError):
        return None


def _identical(name: str, left: Any, right: Any) -> Literal | None:
    """Of None, True and False there is one each."""
    if not any(left is each or right is each for each in (None, True, False)):
        return None
    return Literal.of((left is right) is (name == "is"))


def _fit(name: str, values: Sequence[Any]) -> bool:
    """Whether operands are numbers, or strings to compare, of a size that is worth computing."""
    if all(type(value) is str for value in values):
        return name in ("eq", "ne")
    if not all(type(value) in NUMBERS for value in values):
        return False
    grows = name in ("pow", "ipow", "lshift", "ilshift")
    return not grows or (type(values[1]) is int and 0 <= values[1] <= _HIGHEST)


_RULES: dict[str, Callable[..., Any]] = {
    "neg": operator.neg,
    "pos": operator.pos,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "ge": operator.ge,
}
