"""Python's builtins and torch's number conversions that have a batched meaning.

``HANDLERS[callable](context, args, kwargs)`` gives the result, or None where this combination
of operands has no batched form and runs once or thread by thread like any other host call.
"""

from __future__ import annotations

from typing import Any

from autobatch.batching import conversions, lists, operator_calls, pullbacks, shapes, sharing
from autobatch.batching.calling import partials
from autobatch.batching.containers import iteration, reductions, structures
from autobatch.batching.context import Handler
from autobatch.batching.host import managing
from autobatch.batching.objects import copying, introspection
from autobatch.batching.tables import masks

HANDLERS: dict[Any, Handler] = {
    **conversions.HANDLERS,
    **copying.HANDLERS,
    **introspection.HANDLERS,
    **iteration.HANDLERS,
    **lists.HANDLERS,
    **managing.HANDLERS,
    **masks.HANDLERS,
    **operator_calls.HANDLERS,
    **partials.HANDLERS,
    **pullbacks.HANDLERS,
    **reductions.HANDLERS,
    **shapes.HANDLERS,
    **sharing.HANDLERS,
    **structures.HANDLERS,
}
