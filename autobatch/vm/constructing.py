"""Instances of the user's classes: containers of their attributes, filled by ``__init__``."""

from __future__ import annotations

from autobatch.batching import calls, operators
from autobatch.batching.calling import resolving
from autobatch.batching.context import Context
from autobatch.batching.host.own_methods import refuse_finalizer
from autobatch.batching.kinds import found_in_class, generated_init, owner_of
from autobatch.batching.objects import classes
from autobatch.values.cells import Cell, Container


def constructed(context: Context, target: resolving.Target) -> tuple[Cell, resolving.Target | None]:
    """The instance that a construction makes, and the call that fills it if there is one."""
    kind, args, kwargs = target.callee, target.args, target.kwargs
    refuse_finalizer(context.span, kind)
    if not classes.is_plain_class(kind):
        return calls.run(context, resolving.Target("unknown", kind, args, kwargs)), None
    fields: dict[str, Cell] = {}
    instance = Cell(Container(kind, fields))
    if generated_init(kind):
        owner = owner_of(kind, kind.__init__)
        own, passed = classes.dataclass_fields(context, owner, args, kwargs)
        fields.update(own)
        if found_in_class(kind, "__post_init__") is None:
            return instance, None
        return instance, resolving.Target("program", kind.__post_init__, [instance, *passed], {})
    if kind.__init__ is object.__init__:
        if args or kwargs:
            operators.once(context, lambda: kind(*[None] * len(args), **dict.fromkeys(kwargs)))
        return instance, None
    return instance, resolving.resolve_object(kind.__init__, [instance, *args], kwargs)
