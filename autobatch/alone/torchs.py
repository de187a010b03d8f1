"""Whether torch's functions, methods and modules are what they were when autobatch was imported.

Plain Python may come to any of them, and what runs in the place of one may draw, write or go its
own way. So all is looked at before each run that comes near a tensor: what the Python of torch
reads by a name (see ``batching.replaced``), and what making and calling a module runs.
"""

from __future__ import annotations

from operator import attrgetter, is_

from torch import nn

from autobatch.alone.modules import CALLING, KINDS, MADE
from autobatch.batching import replaced
from autobatch.compat import (
    BACKWARD_HOOKS,
    BACKWARD_PRE_HOOKS,
    BUFFER_HOOKS,
    FORWARD_HOOKS,
    FORWARD_PRE_HOOKS,
)

_MODULES = tuple(KINDS)
_FORWARDS = tuple(map(attrgetter("forward"), _MODULES))
_MADE = tuple(MADE)
_MAKES = tuple(map(attrgetter("__init__"), _MADE))
_CALLED = (*CALLING, "__getattr__", "__init__", "__setattr__", "register_buffer")
_CALLS = tuple(vars(nn.Module)[name] for name in _CALLED)
_HOOKS = (FORWARD_HOOKS, FORWARD_PRE_HOOKS, BACKWARD_HOOKS, BACKWARD_PRE_HOOKS, BUFFER_HOOKS)


def is_torch_as_it_was() -> bool:
    """Whether nobody has put another function in the place of one of torch's, or a hook to it."""
    return (
        replaced.look() is replaced.NOTHING
        and all(map(is_, map(attrgetter("forward"), _MODULES), _FORWARDS))
        and all(map(is_, map(attrgetter("__init__"), _MADE), _MAKES))
        and all(map(is_, map(vars(nn.Module).get, _CALLED), _CALLS))
        and not any(_HOOKS)
    )
