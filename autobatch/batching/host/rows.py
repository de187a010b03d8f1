"""Thread by thread: functions that are called once for each thread, lowest first.

In: cells (see ``rower``); out: one cell of what the calls gave (see ``from_rows``). A failure is
``RowsFail`` with the row; where threads leave one by one, the others go on. What runs so is
counted, and held to the option ``fallback``.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import MethodType
from typing import Any

import numpy as np
from torch import Tensor

from autobatch.batching.context import Context, RowsFail
from autobatch.batching.fallbacks import is_meant
from autobatch.batching.host.asking import CACHES, handed, refuse_called
from autobatch.batching.host.from_rows import from_rows
from autobatch.batching.host.getters import note_reached
from autobatch.batching.host.named import asks_by_name, refuse_named
from autobatch.batching.host.own_methods import ATOMS, Unknown, is_in, may_show, refuse_shown
from autobatch.batching.host.rower import Rower, own_memory
from autobatch.batching.known_callees import uncalled
from autobatch.batching.levels import DrawError
from autobatch.batching.raising import lose_context
from autobatch.batching.switching import switching_refused
from autobatch.compat import shown_name
from autobatch.random.alike import Alike
from autobatch.random.drawing import drawing
from autobatch.random.sources import Thread, Threads
from autobatch.values.cells import Cell, is_iterator

LENT: frozenset[Any] = frozenset(
    {
        *(sum, min, max, sorted, any, all, len, str, repr, tuple),
        *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
        operator.contains,
    }
)
"""Functions that look at lists and keep none: of lists in one table, they get copies."""


class RowDraws:
    """Lets what runs for one thread draw where that thread is; at the end each is farther on."""

    def __init__(self, source: Threads | None, alike: Alike | None, threads: np.ndarray) -> None:
        self.source, self.alike, self.threads = source, alike, threads
        if source is not None:
            self.keys, self.before = source.paths.here()
            self.numbers = self.before.copy()

    @classmethod
    def of(cls, context: Context) -> RowDraws:
        return cls(context.source(), context.services.alike, context.threads)

    def __enter__(self) -> RowDraws:
        return self

    def __exit__(self, *_: object) -> None:
        if self.source is not None and (self.numbers != self.before).any():
            self.source.paths.moved(self.numbers)

    def by_row(self, call: Callable[[int], Any]) -> Callable[[int], Any]:
        source = self.source
        if source is None:
            return call if self.alike is None else self.alike.by_row(self.threads, call)

        def drawn(row: int) -> Any:
            number = int(self.numbers[row])
            thread = Thread(int(source.threads[row]), int(self.keys[row]), number)
            try:
                with drawing(thread):
                    return call(row)
            finally:
                self.numbers[row] = thread.number

        return drawn


ANY_EFFECT = "it may have any effect"
OWN_PARTS = "each example has one of its own, of another length or with other elements"
"""Why a method of a list, dict or set does: those that are kept together never come here."""


def run_rows(
    context: Context,
    function: Callable[..., Any],
    args: Sequence[Cell],
    kwargs: dict[str, Cell],
    why: str,
    keep: bool = False,
    fresh: bool = True,
    effect: bool | None = None,
    once: bool = False,
) -> Cell:
    """Call ``function`` once per thread, lowest thread first; a failure is ``RowsFail``.

    ``keep``: the call may change its arguments. ``fresh``: no other name refers to its results.
    ``effect``: the call may do anything, so it must not run twice for a thread; None where methods
    of the user's classes that it asks decide that. ``once``: it has no other effect than on its
    arguments, but must not run twice either. Where threads leave one by one, all others run, and
    ``RowsFail`` is for when none of them is left.
    """
    given = (*args, *kwargs.values())
    keep = keep or any(is_iterator(cell.value) for cell in given)
    if effect is None and may_show(context, function, uncalled(function, args, kwargs), given):
        return context.invoke(context, Unknown(function), list(args), kwargs)
    context.settle()
    if effect:
        context.visible(keep)
    if context.k > 0:
        note_fallback(context, function, (*args, *kwargs.values()), why, bool(effect))
        context.counter.one_by_one()
    asked = function.function if isinstance(function, Unknown) else function
    if effect:
        # While it is seen what they hold.
        refuse_shown(context, asked, uncalled(asked, args, kwargs), given)
    if not fresh:
        own_memory(context, (*args, *kwargs.values()))
    rower = Rower(context, keep, is_in(function, LENT))
    hand = partial(handed, context.services.handing, context.span, asked, len(args))
    columns = [hand(place, rower.rows(arg)) for place, arg in enumerate(args)]
    named = {name: hand(name, rower.rows(arg)) for name, arg in kwargs.items()}
    refuse_called(context.services.handing, asked)
    if asks_by_name(asked):
        look = partial(refuse_named, context.services.handing, context.foreign.holds, asked)
        for row in range(context.k):
            look([column[row] for column in columns], {name: named[name][row] for name in named})
    note_reached(context.foreign, asked, (item for column in columns for item in column))
    once = once or any(map(advances, (*columns, *named.values())))
    of_torch = context.paths is None and context.services.alike is None
    if len(columns) == 1 and not named and of_torch:
        return called(context, function, function, columns[0], fresh, bool(effect), once)
    with RowDraws.of(context) as draws:
        call = draws.by_row(partial(call_row, function, columns, named))
        return called(context, function, call, range(context.k), fresh, bool(effect), once)


def advances(rows: Sequence[Any]) -> bool:
    """Whether a call that is given these takes items of an iterator, which it cannot take again."""
    return any(hasattr(type(row), "__next__") for row in rows)


def write_rows(context: Context, function: Callable[..., Any], *args: Cell) -> None:
    """Change each thread's own object; what has been changed stays so where a thread above fails.

    An operation that gives nothing: its threads below the one that fails are done with it.
    """
    run_rows(context, function, args, {}, "objects", keep=True, once=True)


def map_rows(
    context: Context,
    function: Callable[[Any], Any],
    cell: Cell,
    items: list[Any],
    why: str,
    quick: Callable[[Any], Any] | None = None,
) -> Cell:
    """``function``, which has no effect, of each object of a cell; it may give what others name.

    ``quick`` gives the same, sooner.
    """
    context.settle()
    try:
        results = list(map(quick or function, items))
    except Exception:  # whose it is, and what the others have, tells the long way
        return run_rows(context, function, [cell], {}, why, fresh=False, effect=False)
    if items:
        note_fallback(context, function, (cell,), why)
    return from_rows(context, results, fresh=False)


def called(
    context: Context,
    function: Callable[..., Any],
    call: Callable[..., Any],
    items: Sequence[Any],
    fresh: bool,
    effect: bool,
    once: bool,
) -> Cell:
    """What a call gives for the item of each row; see ``run_rows``."""
    if effect:
        results = with_effect(context, call, items, fresh)
    else:
        results = made(context, call, items, fresh, once)
    context.services.generators.see(results, context.span)
    if not fresh:
        note_shared(context, results, is_keeping(function))
    return from_rows(context, results, fresh)


def with_effect(
    context: Context, call: Callable[..., Any], items: Sequence[Any], fresh: bool
) -> list[Any]:
    """What code that may do anything gives for each row."""
    try:
        with switching_refused(context.span):
            return made(context, call, items, fresh, True)
    finally:
        context.services.shows()


def made(
    context: Context, call: Callable[..., Any], items: Sequence[Any], fresh: bool, once: bool
) -> list[Any]:
    if context.lost is not None:
        return isolated(context, call, items)
    return in_order(context, call, items, fresh, once)


def is_keeping(function: Any) -> bool:
    """Whether what it gives may be what it has given before: ``functools.cache``, or its method."""
    while not isinstance(function, CACHES):
        if isinstance(function, Unknown):
            function = function.function
        elif isinstance(function, MethodType | partial):
            function = function.__func__ if isinstance(function, MethodType) else function.func
        else:
            return False
    return True


def note_shared(context: Context, results: list[Any], cached: bool) -> None:
    """What host code hands to several threads, or has kept, is none of their own.

    A thread that is lost has another's, and leaves.
    """
    if not results or (type(results[0]) in ATOMS and not isinstance(results[0], Tensor)):
        return
    seen: dict[int, int] = {}
    threads, lost = context.threads.tolist(), context.lost or ()
    keys = context.keys.tolist() if lost else threads
    for item, thread, key in zip(results, threads, keys, strict=True):
        if key not in lost and (cached or seen.setdefault(id(item), thread) != thread):
            context.foreign.note(item)


def in_order(
    context: Context, call: Callable[..., Any], items: Sequence[Any], fresh: bool, once: bool
) -> list[Any]:
    """What ``call`` gives for each row; with ``RowsFail`` come the results below, if need be."""
    results: list[Any] = [None] * context.k
    row, handled = -1, sys.exception()
    try:
        for row in context.order():
            results[row] = call(items[row])
    except Exception as error:
        lose_context(error, handled)
        done = finished(context, results, row, fresh) if once else None
        raise RowsFail(row, error, done) from error
    return results


def call_row(
    function: Callable[..., Any], columns: list[list[Any]], named: dict[str, list[Any]], row: int
) -> Any:
    if len(columns) == 1 and not named:
        return function(columns[0][row])
    return function(
        *[column[row] for column in columns],
        **{name: column[row] for name, column in named.items()},
    )


def isolated(context: Context, call: Callable[..., Any], items: Sequence[Any]) -> list[Any]:
    """What ``call`` gives for each row; a row that fails is lost, and gets what another has."""
    results: list[Any] = [None] * context.k
    failed: list[int] = []
    failure: RowsFail | None = None
    handled = sys.exception()
    for row in context.order():
        try:
            results[row] = call(items[row])
        except DrawError:  # a refusal, which is no thread's own
            raise
        except Exception as error:
            lose_context(error, handled)
            context.lose(row, error)
            failed.append(row)
            failure = failure or RowsFail(row, error)
    if failure is None:
        return results
    if len(failed) == context.k:
        raise failure from failure.error
    spare = next(row for row in range(context.k) if row not in set(failed))
    for row in failed:
        results[row] = results[spare]
    return results


def finished(context: Context, results: list[Any], failed: int, fresh: bool) -> Cell:
    """The results of the threads below the one that failed."""
    limit = context.threads[failed]
    rows = [row for row in range(context.k) if context.threads[row] < limit]
    return from_rows(context.restricted(rows), [results[row] for row in rows], fresh)


def note_fallback(
    context: Context,
    function: Callable[..., Any],
    cells: Sequence[Cell],
    why: str,
    effect: bool = False,
) -> None:
    """Count what runs thread by thread, and hold it to the option ``fallback``."""
    if context.policy is None and not context.counter.listens:
        return
    what = shown_name(function)
    meant = partial(is_meant, function, cells, why, effect)
    context.counter.fallback(context.span, what, why, meant)
    if context.policy is not None:
        context.policy.runs += 1
        if not meant():
            context.policy.met(context.span, what, why, context.threads.tolist())
