"""The tensors that Python objects hold, however deep.

In: objects that a program has made on the host: dicts, instances, what has been made of them. Out:
each tensor in them, once. What types, modules and the globals of functions hold is nobody's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from gc import get_referents
from types import FrameType, FunctionType, ModuleType
from typing import Any

from torch import Tensor

from autobatch.batching.handed import Handed
from autobatch.structure import SINGLE

EVERYBODYS = (type, ModuleType, FrameType)


def held(objects: Iterable[Any]) -> Iterator[Tensor]:
    waiting, seen = list(objects), set[int]()
    kept = [waiting]  # what is there for this walk alone keeps its identity until its end
    while waiting:
        each = waiting.pop()
        if type(each) in SINGLE or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, Tensor):
            yield each
        elif not isinstance(each, EVERYBODYS):
            parts = parts_of(each)
            kept.append(parts)
            waiting += parts


def parts_of(obj: Any) -> list[Any]:
    if isinstance(obj, Handed):
        return obj.held()
    if type(obj) is FunctionType:
        return [obj.__closure__, obj.__defaults__, obj.__kwdefaults__]
    return get_referents(obj)
