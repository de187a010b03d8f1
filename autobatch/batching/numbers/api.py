"""Finding an operation on numbers, and running it or foreseeing what it gives."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from autobatch.batching.numbers.arithmetic import ARITHMETIC
from autobatch.batching.numbers.compare import CHOICES, COMPARISONS
from autobatch.batching.numbers.conversions import CONVERSIONS
from autobatch.batching.numbers.mathematics import FUNCTIONS
from autobatch.batching.numbers.records import (
    Bounds,
    Described,
    NumberResult,
    Outlook,
    Rule,
    Scalar,
    Term,
    term,
)
from autobatch.batching.numbers.sums import SUMS

_BUILTINS = ("abs", "min", "max", "round", "int", "float", "bool", "divmod", "pow")
_TO_INT = ("floor", "ceil", "trunc")


@dataclass(frozen=True, slots=True)
class Operation:
    """One rule for each result: ``divmod`` has two."""

    parts: tuple[Rule, ...]


def _operations() -> dict[str, Operation]:
    singles = {**ARITHMETIC, **COMPARISONS, **CHOICES, **CONVERSIONS, **SUMS}
    in_place = {f"i{name}": rule for name, rule in ARITHMETIC.items()}
    found = {name: Operation((rule,)) for name, rule in {**singles, **in_place}.items()}
    return {**found, "divmod": Operation((ARITHMETIC["floordiv"], ARITHMETIC["mod"]))}


OPERATIONS: Mapping[str, Operation] = MappingProxyType(_operations())


def _callables() -> dict[Callable[..., Any], Operation]:
    spelled = {"and": "and_", "or": "or_", "not": "not_"}
    operators = ((spelled.get(name, name), found) for name, found in OPERATIONS.items())
    return {
        **{getattr(operator, name): found for name, found in operators if hasattr(operator, name)},
        **{getattr(builtins, name): OPERATIONS[name] for name in _BUILTINS},
        **{getattr(math, name): OPERATIONS[name] for name in _TO_INT},
        **{function: Operation(parts) for function, parts in FUNCTIONS.items()},
    }


CALLABLES: Mapping[Callable[..., Any], Operation] = MappingProxyType(_callables())


def lookup(function: object) -> Operation | None:
    """What a builtin, or a function of ``math`` or ``operator``, does to columns of numbers."""
    try:
        return CALLABLES.get(function)  # type: ignore[call-overload, no-any-return]
    except TypeError:  # not hashable
        return None


def apply(
    name: str | Operation, *operands: Described | Scalar, checked: bool = True
) -> NumberResult | tuple[NumberResult, ...] | None:
    """Runs an operation on columns and uniform numbers, one operand at least a column.

    A tuple where the operation has several results; None where it has no batched form for these
    operands. Unless ``checked``, no kernels are spent on failed and escaping rows.
    """
    operation = OPERATIONS.get(name) if isinstance(name, str) else name
    terms = _terms(operands)
    if operation is None or terms is None:
        return None
    outlooks = _foreseen(operation, terms)
    if outlooks is None:
        return None
    results = tuple(
        _run(rule, outlook if checked else _unchecked(outlook), terms)
        for rule, outlook in zip(operation.parts, outlooks, strict=True)
    )
    return results[0] if len(results) == 1 else results


def forecast(name: str | Operation, *operands: Described | Scalar) -> tuple[Outlook, ...] | None:
    """What ``apply`` would give, one outlook per result, without kernels; operands need no data."""
    operation = OPERATIONS.get(name) if isinstance(name, str) else name
    terms = _terms(operands)
    return None if operation is None or terms is None else _foreseen(operation, terms)


def bounds_of(name: str | Operation, *operands: Described | Scalar) -> tuple[Bounds, bool] | None:
    """The bounds of an operation's one result, and whether rows may escape; None as ``apply``."""
    outlooks = forecast(name, *operands)
    if outlooks is None:
        return None
    if len(outlooks) > 1:
        raise ValueError("an operation with several results has several bounds: use forecast")
    return outlooks[0].bounds, outlooks[0].may_escape


def _terms(operands: tuple[Described | Scalar, ...]) -> list[Term] | None:
    terms = []
    some_column = False
    for operand in operands:
        found = term(operand)
        if found is None:
            return None
        some_column = some_column or not found.is_uniform
        terms.append(found)
    return terms if some_column else None


def _foreseen(operation: Operation, terms: list[Term]) -> tuple[Outlook, ...] | None:
    outlooks = []
    for rule in operation.parts:
        fits = rule.least <= len(terms) <= rule.most
        outlook = rule.foresee(*terms) if fits else None
        if outlook is None:
            return None
        outlooks.append(outlook)
    return tuple(outlooks)


def _unchecked(outlook: Outlook) -> Outlook:
    return outlook._replace(may_fail=False, may_escape=False)


def _run(rule: Rule, outlook: Outlook, terms: list[Term]) -> NumberResult:
    data, failed, escape = rule.compute(outlook, *terms)
    return NumberResult(outlook.tag, data, failed, escape, outlook.bounds)
