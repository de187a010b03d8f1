"""Generators that a program makes by calling a function that yields: Python runs them.

    def squares(n):
        for i in range(n):
            yield i * i

In: a call of such a function. Out: a generator for each thread, whose items are taken thread by
thread. What the function does comes between what other threads do, and as late as its items are
taken; so nobody else may see it: it is looked into as ``frontend.yielding`` lowers it, and the
classes of what it is given are. It shares lists and tensors with the program, which sees and makes
changes as in Python.
"""

from __future__ import annotations

from autobatch.batching.calling.resolving import Target
from autobatch.batching.context import Context
from autobatch.batching.host.own_methods import classes
from autobatch.batching.host.rows import run_rows
from autobatch.batching.trace import Untraceable
from autobatch.values.cells import Cell

WHY = "a generator is no program: Python runs it"


def call(context: Context, target: Target) -> Cell:
    """The generators of a call, each of a thread's own."""
    function, services = target.callee, context.services
    if services.handing is None:
        raise Untraceable("it makes a generator")
    given = [*target.args, *target.kwargs.values()]
    services.handing.refuse_generator(function, {kind for kind, _ in classes(given, True, True)})
    args, kwargs = target.args, target.kwargs
    return run_rows(context, function, args, kwargs, WHY, keep=True, fresh=False, effect=False)
