"""``functools.singledispatchmethod``: methods of which the first argument's class picks one.

Python gives a function that closes over the instance, whose writes to it would be lost where it is
made on the host. Here a method of the class is a program that picks, and calls on the instance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, singledispatchmethod, update_wrapper
from types import FunctionType, MethodType
from typing import Any

from autobatch.structure import own_attributes


@lru_cache(maxsize=256)
def dispatching(method: singledispatchmethod[Any]) -> Callable[..., Any]:
    """What picks a function, and calls it: lowered as what ``method`` wraps is."""
    dispatch = method.dispatcher.dispatch

    def called(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not args:
            return method.__get__(self, self.__class__)(**kwargs)  # an error, Python's own
        found = dispatch(args[0].__class__)
        if isinstance(found, FunctionType):
            return found(self, *args, **kwargs)
        if isinstance(found, staticmethod):
            return found.__func__(*args, **kwargs)
        if isinstance(found, classmethod):
            return found.__func__(self.__class__, *args, **kwargs)
        return found.__get__(self, self.__class__)(*args, **kwargs)

    update_wrapper(called, method.func)
    return called


def dispatching_method(obj: Any, name: str) -> MethodType | None:
    """What ``obj.name`` is for one example, if it is one of those."""
    kinds: Sequence[type] = type(obj).__mro__
    if type(obj) is super:
        after: Any = obj  # the checker knows no attributes of it
        above = after.__self_class__.__mro__
        obj, kinds = after.__self__, above[above.index(after.__thisclass__) + 1 :]
    elif name in (own_attributes(obj) or ()):
        return None
    static = next((vars(kind)[name] for kind in kinds if name in vars(kind)), None)
    is_one = isinstance(static, singledispatchmethod) and not isinstance(obj, type)
    return MethodType(dispatching(static), obj) if is_one else None
