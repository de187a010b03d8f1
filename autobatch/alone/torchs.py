"""Whether torch's functions, methods and modules are what they were when autobatch was imported.

What is known of a function of torch's is known of its own code, and of what that calls by a name:
``F.relu`` is a line of Python that asks ``torch`` for its ``relu``. Anybody may put another in the
place of one, and what runs then may draw, write or go its own way. So all is looked at that plain
Python may come to, before each run that comes near a tensor: what the Python of ``torch.nn``,
``torch.functional`` and ``torch.Tensor`` reads by a name, what it defines, and tensors' methods.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from operator import attrgetter, is_, itemgetter
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from autobatch.alone.modules import CALLING, KINDS


def read_in(code: CodeType) -> Iterator[str]:
    """The names that a function reads, and those within it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from read_in(inner)


def defined_in(module: Any) -> Iterator[FunctionType]:
    """The functions of a module of torch's, and the methods of its classes."""
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        members = vars(value).values() if isinstance(value, type) else (value,)
        yield from (each for each in members if isinstance(each, FunctionType))


def _read() -> frozenset[str]:
    """The names that torch's Python for tensors and modules reads."""
    places = [found for name, found in sys.modules.items() if name.startswith("torch.nn.modules.")]
    places += [F, torch.functional, torch._tensor]
    codes = (function.__code__ for place in places for function in defined_in(place))
    return frozenset(name for code in codes for name in read_in(code))


_READ = _read()


def _callables(space: Mapping[str, Any], names: frozenset[str] | None = None) -> tuple[str, ...]:
    return tuple(
        name
        for name, found in space.items()
        if callable(found) and not isinstance(found, type) and (names is None or name in names)
    )


def _noted(space: Mapping[str, Any], names: tuple[str, ...]) -> tuple[Any, Any, Any]:
    """What a place has under some names, and how to look at it again."""
    look = itemgetter(*names)
    return space, look, look(space)


_SPACES = (
    _noted(vars(torch), _callables(vars(torch), _READ)),
    _noted(vars(F), _callables(vars(F))),
    _noted(vars(torch._C._nn), _callables(vars(torch._C._nn), _READ)),
    _noted(vars(Tensor), tuple(vars(Tensor))),
)
_MODULES = tuple(KINDS)
_FORWARDS = tuple(map(attrgetter("forward"), _MODULES))
_CALLED = (*CALLING, "__getattr__")
_CALLS = tuple(vars(nn.Module)[name] for name in _CALLED)
_OF_TENSORS, _OF_BASE = frozenset(vars(Tensor)), frozenset(dir(torch._C.TensorBase))
_OF_VF = frozenset(vars(torch._VF))


def is_torch_as_it_was() -> bool:
    """Whether nobody has put another function in the place of one of torch's."""
    try:
        same = all(all(map(is_, look(space), found)) for space, look, found in _SPACES)
    except KeyError:  # one has been taken away
        return False
    return (
        same
        and all(map(is_, map(attrgetter("forward"), _MODULES), _FORWARDS))
        and all(map(is_, map(vars(nn.Module).get, _CALLED), _CALLS))
        and _OF_BASE.isdisjoint(vars(Tensor).keys() - _OF_TENSORS)
        and vars(torch._VF).keys() <= _OF_VF
    )
