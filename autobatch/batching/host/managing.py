"""What ``with`` does for a group of threads: by what functions it enters and leaves their managers.

In: the cell of a manager. A manager whose class is a program's own is entered and left by its
methods, as any method is called. Any other that is no mode is entered and left once for each thread
on the host, lowest thread first, and left in the opposite order, as nested ``with`` statements are:
what each has found and changed, a global setting say, is then put back as it was before all. Files
are left as the loop leaves them, so that what is written comes in its order.

Threads may have modes of torch's of their own: the blocks inside run for those of each mode apart.
Nothing that a manager does to torch's modes may reach threads that are not in its body: one that
changes them is refused, and so is one that all threads share.
"""

from __future__ import annotations

import contextlib
import io
from typing import Any

from autobatch.batching.ambient import ambient
from autobatch.batching.context import Context, Handler, RowsFail
from autobatch.batching.host.from_rows import from_rows
from autobatch.batching.host.rower import Rower
from autobatch.batching.host.rows import RowDraws, finished, note_fallback, run_rows
from autobatch.batching.managers import (
    enter_host,
    enter_mode,
    function_of,
    is_mode,
    itself,
    leave_host,
    leave_mode,
    mode_key,
)
from autobatch.errors import Diagnostic, UnsupportedError
from autobatch.values.cells import Cell, Container, Objects, Uniform, read, uniform

REENTRANT = (contextlib.suppress, contextlib.nullcontext)
"""Managers that several threads may be in at once."""
MOST_MODES = 8
"""Modes of one `with` statement that threads may be in; they run apart."""
PER_THREAD = "put the `with` statement into a function marked autobatch.per_thread."


def ways(context: Context, name: str, cell: Cell) -> Cell:
    """The function by which each thread's manager is entered or left."""
    value = read(cell)
    if type(value) is Container and isinstance(value.type, type):
        found = [(value.type, None)] * max(context.k, 1)
    else:
        rows = [value.obj] if type(value) is Uniform else Rower(context).rows(cell)
        found = [(type(row), row) for row in rows]
    if len({id(row) for _, row in found}) > 1 and any(is_mode(row) for _, row in found):
        why = "its threads have modes of torch's of their own"
        raise refused(context, why, "choose by an `if` with a `with` statement in each branch.")
    functions: list[Any] = [None] * len(found)
    for row in context.order() if len(found) == context.k else range(len(found)):
        try:
            functions[row] = function_of(name, *found[row])
        except TypeError as error:
            context.lose(row, error)
    context.leave()
    if all(function is functions[0] for function in functions):
        return uniform(functions[0], shared=True)
    return Cell(Objects(functions))


def mode_entered(context: Context, attr: Any, cell: Cell) -> Cell:
    """What entering a mode gives to all threads."""
    value = read(cell)
    if (
        type(value) is Objects
        and all(map(is_mode, value.items))
        and len(set(map(mode_key, value.items))) <= MOST_MODES
    ):  # the blocks inside run for the threads of each mode apart (``vm.modes``)
        return run_rows(context, enter_mode, [cell], {}, "a mode", fresh=False, effect=False)
    if type(value) is not Uniform or not is_mode(value.obj):
        raise refused(context, "its threads have modes of torch's of their own", PER_THREAD)
    try:
        return uniform(enter_mode(value.obj), shared=True)
    except Exception as error:
        raise RowsFail(context.lowest(), error) from error


def entering_mode(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell:
    return mode_entered(context, None, args[0])


def leaving_mode(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell:
    return uniform(None)


def entering_itself(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell:
    return args[0]


def entering_hosts(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell:
    """Enter a manager for each thread."""
    value = read(args[0])
    if type(value) is Uniform and not isinstance(value.obj, REENTRANT):
        raise refused(context, "all threads share its manager", PER_THREAD)
    changed: list[Any] = []

    def enter(manager: Any) -> Any:
        before = ambient()
        given = enter_host(manager)
        if ambient() != before:
            changed.append(manager)
            leave_host(manager, None, None, None)
        return given

    why = "a manager"
    given = run_rows(context, enter, [args[0]], {}, why, keep=True, fresh=False, effect=True)
    if changed:
        why = "entering its manager changes torch's modes, for other threads too"
        raise refused(context, why, "write the `with` statement of torch's mode itself.")
    return given


def leaving_hosts(context: Context, args: list[Cell], kwargs: dict[str, Cell]) -> Cell:
    """Leave the manager of each thread, whatever becomes of some: files lowest thread first."""
    context.settle()
    context.visible(True)
    note_fallback(context, leave_host, args, "a manager", True)
    rower = Rower(context, keep=True)
    columns = [rower.rows(arg) for arg in args]
    results: list[Any] = [None] * context.k
    failed: dict[int, Exception] = {}
    with RowDraws.of(context) as draws:
        leave = draws.by_row(lambda row: leave_host(*(column[row] for column in columns)))
        lowest_first = all(isinstance(manager, io.IOBase) for manager in columns[0])
        order = context.order()
        for row in order if lowest_first else reversed(order):
            try:
                results[row] = leave(row)
            except Exception as error:
                failed[row] = error
    context.services.shows()
    if failed and context.lost is None:
        lowest = next(row for row in context.order() if row in failed)
        raise RowsFail(lowest, failed[lowest], finished(context, results, lowest, False))
    for row in sorted(failed):
        context.lose(row, failed[row])
    if len(failed) == context.k:
        context.leave()
    return from_rows(context, results, fresh=False)


HANDLERS: dict[Any, Handler] = {
    enter_mode: entering_mode,
    leave_mode: leaving_mode,
    itself: entering_itself,
    enter_host: entering_hosts,
    leave_host: leaving_hosts,
}


def refused(context: Context, why: str, hint: str) -> UnsupportedError:
    return UnsupportedError(
        Diagnostic(
            "This `with` statement cannot run in a batch.",
            context.span,
            "entered here",
            (f"{why}.",),
            (hint,),
            "with-manager",
        )
    )
