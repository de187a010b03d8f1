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
    Array,
    Listed,
    Range,
    Refused,
    Rows,
    Structure,
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


def less(best: Any, other: Any) -> Any:
    return other if other < best else best


def greater(best: Any, other: Any) -> Any:
    return other if other > best else best


def least(items: Any) -> Any:
    best = None
    for item in items:
        if item is None:
            raise TypeError
        if best is None or item < best:
            best = item
    if best is None:
        raise ValueError
    return best


def greatest(items: Any) -> Any:
    best = None
    for item in items:
        if item is None:
            raise TypeError
        if best is None or item > best:
            best = item
    if best is None:
        raise ValueError
    return best


def least_or(items: Any, default: Any) -> Any:
    for _ in items:
        return least(items)
    return default


def greatest_or(items: Any, default: Any) -> Any:
    for _ in items:
        return greatest(items)
    return default


def least_by(items: Any, key: Any) -> Any:
    best = least_key = None
    for item in items:
        own = key(item)
        if own is None or item is None:
            raise TypeError
        if least_key is None or own < least_key:
            best, least_key = item, own
    if best is None:
        raise ValueError
    return best


def greatest_by(items: Any, key: Any) -> Any:
    best = greatest_key = None
    for item in items:
        own = key(item)
        if own is None or item is None:
            raise TypeError
        if greatest_key is None or own > greatest_key:
            best, greatest_key = item, own
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


EXTREMES: dict[str, tuple[Callable[..., Any], ...]] = {
    "lt": (less, least, least_or, least_by),
    "gt": (greater, greatest, greatest_or, greatest_by),
}
"""What a comparison is between two, among many, among many or a default, and by a key."""


def text_of(function: Callable[..., Any]) -> FunctionType:
    assert isinstance(function, FunctionType)
    return function


# The rules


def listed(x: Value) -> list[Value] | None:
    """The parts of what is gone through, if they are known."""
    return parts_of(x) if isinstance(x.type, Structure) and x.type.kind is not dict else None


def gone_through(x: Value) -> Value:
    """What text can go through."""
    if isinstance(x.type, Structure | Range | Rows | Array | Listed):
        return x
    raise functions.Unfit(f"has no compiled form for {x.type}")


def extreme(
    order: str, place: Place, args: Sequence[Value], named: dict[str, Value]
) -> Iterator[Value]:
    """``min`` and ``max``."""
    many, many_or, by = (text_of(each) for each in EXTREMES[order][1:])
    if named.keys() - {"key", "default"} or len(named) > 1 or not args:
        raise functions.Unfit("has a compiled form with a key, or with a default")
    parts = list(args) if len(args) > 1 else listed(args[0])
    if "key" in named:
        if place.w.seeded:
            refuse("a key has no compiled form under a seed")
        yield from place.entered(by, [packed(args), named["key"]], {})
    elif len(args) > 1 and named:
        raise functions.Unfit("raises here: a default goes with one argument")
    elif parts is not None and "default" not in named and not parts:
        place.w.raise_always(ValueError)
    elif parts is not None and parts:
        yield from between(order, place, parts)
    elif parts is not None:
        yield named["default"]
    elif "default" in named:
        yield from place.entered(many_or, [gone_through(args[0]), named["default"]], {})
    else:
        yield from place.entered(many, [gone_through(args[0])], {})


def between(order: str, place: Place, parts: Sequence[Value]) -> Iterator[Value]:
    """The first of several that no other one precedes."""
    first, *others = parts
    if not others:
        yield first
        return
    for part in parts:
        functions.scalar(part)
    if len({part.type for part in parts}) == 1:
        yield functions.extreme(order, place.w, parts)
        return
    for best in place.entered(text_of(EXTREMES[order][0]), [first, others[0]], {}):
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
        yield from place.entered(text_of(text), [gone_through(items), made], {})
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
        yield from place.entered(text, [gone_through(items)], {})
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
