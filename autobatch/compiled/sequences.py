"""``min``, ``max``, ``sum``, ``any``, ``all`` and ``math.prod``, exactly as Python has them.

What they go through that has its parts in a structure is taken part by part, all else by Python
text that means the same. A result may be of several types: ``max(1, x)`` is the int or ``x``.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FunctionType
from typing import Any, Protocol

from autobatch.compiled import functions, sums
from autobatch.compiled.operators import binary, known_bit, truth
from autobatch.compiled.types import (
    BOOL,
    INT,
    Array,
    Items,
    Listed,
    Number,
    Range,
    Refused,
    Rows,
    Scalar,
    Static,
    Structure,
    Table,
    Value,
    number,
    parts_of,
    refuse,
    structure,
)
from autobatch.compiled.writer import Writer


class Place(Protocol):
    """A block that is being written."""

    w: Writer

    def entered(
        self, function: FunctionType, args: Sequence[Value], named: dict[str, Value]
    ) -> Iterator[Value]: ...


# The text of what goes through items one by one


def below(one: Any, other: Any) -> Any:
    return one < other


def above(one: Any, other: Any) -> Any:
    return one > other


def nearer(best: Any, other: Any, precedes: Any) -> Any:
    return other if precedes(other, best) else best


def extreme_of(items: Any, precedes: Any) -> Any:
    best = None
    for item in items:
        if item is None:
            raise TypeError
        if best is None or precedes(item, best):
            best = item
    if best is None:
        raise ValueError
    return best


def extreme_or(items: Any, default: Any, precedes: Any) -> Any:
    for _ in items:
        return extreme_of(items, precedes)
    return default


def extreme_by(items: Any, key: Any, precedes: Any) -> Any:
    best = nearest = None
    for item in items:
        own = key(item)
        if own is None or item is None:
            raise TypeError
        if nearest is None or precedes(own, nearest):
            best, nearest = item, own
    if best is None:
        raise ValueError
    return best


def total(items: Any, start: Any) -> Any:
    return sum((item for item in items), start)


def product(items: Any, start: Any) -> Any:
    for item in items:
        start = start * item
    return start


def any_of(items: Any) -> bool:
    for item in items:  # noqa: SIM110
        if item:
            return True
    return False


def all_of(items: Any) -> bool:
    for item in items:  # noqa: SIM110
        if not item:
            return False
    return True


PRECEDES: dict[str, Callable[..., Any]] = {"lt": below, "gt": above}


def text_of(function: Callable[..., Any]) -> FunctionType:
    assert isinstance(function, FunctionType)
    return function


# The rules


def listed(x: Value) -> list[Value] | None:
    """The parts of what is gone through, if they are known."""
    return parts_of(x) if isinstance(x.type, Structure) and x.type.kind is not dict else None


def gone_through(x: Value) -> Value:
    """What text can go through; ``zip(…)`` and the like are nobody's but the call's."""
    if isinstance(x.type, Items) and not x.type.is_iterator:
        return x
    if isinstance(x.type, Structure | Range | Rows | Array | Listed | Table):
        return x
    raise functions.Unfit(f"has no compiled form for {x.type}")


def in_any_order(x: Value) -> Value:
    """The same, where the order does not matter: a set's members, too."""
    if isinstance(x.type, Table):
        return Value(Items("members", (x.type,)), x.leaves)
    return gone_through(x)


def extreme(
    order: str, place: Place, args: Sequence[Value], named: dict[str, Value]
) -> Iterator[Value]:
    """``min`` and ``max``."""
    precedes = Value(Static(PRECEDES[order]))
    if named.keys() - {"key", "default"} or len(named) > 1 or not args:
        raise functions.Unfit("has a compiled form with a key, or with a default")
    parts = list(args) if len(args) > 1 else listed(args[0])
    if "key" in named:
        if place.w.seeded:
            refuse("a key has no compiled form under a seed")
        yield from place.entered(text_of(extreme_by), [packed(args), named["key"], precedes], {})
    elif len(args) > 1 and named:
        raise functions.Unfit("raises here: a default goes with one argument")
    elif parts is not None and "default" not in named and not parts:
        place.w.raise_always(ValueError)
    elif parts is not None and parts:
        yield from between(order, place, parts)
    elif parts is not None:
        yield named["default"]
    elif "default" in named:
        given = [in_any_order(args[0]), named["default"], precedes]
        yield from place.entered(text_of(extreme_or), given, {})
    else:
        yield from place.entered(text_of(extreme_of), [in_any_order(args[0]), precedes], {})


def between(order: str, place: Place, parts: Sequence[Value]) -> Iterator[Value]:
    """The first of several that no other one precedes."""
    first, *others = parts
    if not others:
        yield first
        return
    even = len({part.type for part in parts}) == 1
    if even and isinstance(first.type, Number | Scalar):
        yield functions.extreme(order, place.w, parts)
        return
    precedes = Value(Static(PRECEDES[order]))
    for best in place.entered(text_of(nearer), [first, others[0], precedes], {}):
        yield from between(order, place, [best, *others[1:]])


def folded(
    name: str,
    text: Callable[..., Any],
    first: int,
    place: Place,
    args: Sequence[Value],
    named: dict[str, Value],
) -> Iterator[Value]:
    """``sum`` and ``math.prod``."""
    items, *rest = args or [number(0)]
    if not args or len(rest) + len(named) > 1 or named.keys() - {"start"}:
        raise functions.Unfit("has a compiled form for what it goes through, and a start")
    made = (rest or [*named.values()] or [number(first)])[0]
    parts = listed(items)
    if parts is None:
        exact = made.type in (INT, BOOL)  # floats are rounded, and tuples joined, in order
        over = in_any_order(items) if exact else gone_through(items)
        yield from place.entered(text_of(text), [over, made], {})
        return
    yield added(place.w, made, parts) if name == "add" else multiplied(place.w, made, parts)


def added(w: Writer, total: Value, parts: Sequence[Value]) -> Value:
    lost = sums.begun(w, total)
    for part in parts:
        total = sums.left(w, total, lost, functions.scalar(part))
        after = binary(w, "add", total, part)
        lost, total = sums.lost_by(w, lost, total, part, after), after
    return sums.whole(w, total, lost)


def multiplied(w: Writer, product: Value, parts: Sequence[Value]) -> Value:
    for part in parts:
        product = binary(w, "mul", product, functions.scalar(part))
    return product


def judged(
    stop: bool, place: Place, args: Sequence[Value], named: dict[str, Value]
) -> Iterator[Value]:
    """``any`` and ``all``."""
    items = functions.one(args)
    if named:
        raise functions.Unfit("has a compiled form for one argument")
    parts = listed(items)
    if parts is None:
        text = text_of(any_of if stop else all_of)
        yield from place.entered(text, [in_any_order(items)], {})
        return
    bits: list[str] = []
    for part in parts:
        known = known_bit(part)
        if known is None:
            bits.append(truth(place.w, part))
        elif known == stop:
            yield number(stop)
            return
    if not bits:
        yield number(not stop)
        return
    found = bits[0]
    for bit in bits[1:]:
        found = place.w.made(f"{'or' if stop else 'and'} i1 {found}, {bit}")
    yield Value(BOOL, (found,))


def packed(args: Sequence[Value]) -> Value:
    """What is gone through: the argument, or several as a tuple."""
    return gone_through(args[0]) if len(args) == 1 else structure(tuple, list(args))


Rule = Callable[[Place, Sequence[Value], dict[str, Value]], Iterator[Value]]
RULES: dict[Any, Rule] = {
    builtins.min: partial(extreme, "lt"),
    builtins.max: partial(extreme, "gt"),
    builtins.sum: partial(folded, "add", total, 0),
    math.prod: partial(folded, "mul", product, 1),
    builtins.any: partial(judged, True),
    builtins.all: partial(judged, False),
}


def outcomes(
    rules: dict[Any, Rule],
    place: Place,
    callee: Any,
    args: Sequence[Value],
    named: dict[str, Value],
) -> Iterator[Value] | None:
    """What a call may give by one of the rules; None for another callee."""
    try:
        rule = rules.get(callee)
    except TypeError:  # unhashable
        return None
    return None if rule is None else told(callee.__name__, rule(place, args, named))


def told(name: str, ways: Iterator[Value]) -> Iterator[Value]:
    """The same; what it has no compiled form for is told with its name."""
    try:
        yield from ways
    except functions.Unfit as unfit:
        raise Refused(f"`{name}` {unfit.why}") from None
