"""What a call gives plain Python: its arguments, one by one, for each thread or for all.

In: a ``Batch``. Out: a ``Given`` for each argument, or None where one is nothing for plain Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from autobatch.alone.contents import SCALARS, Contents
from autobatch.alone.taint import ARRAY, CODE, FOREIGN, NONE, OUTER_DEEP, OWNS, TENSOR, Share
from autobatch.alone.world import outer
from autobatch.arguments.batch import Batch
from autobatch.arguments.mapped import COPIED, Mapped, has_mapped
from autobatch.batching import known_arrays as arrays
from autobatch.compat import is_wrapped
from autobatch.options import Options
from autobatch.ragged import Packed

ARRAYS = SCALARS | arrays.KINDS | {np.ndarray}
"""What is an array, or nobody can write to."""


@dataclass(frozen=True, slots=True)
class Given:
    """One argument: ``items`` for each thread, or one ``value`` that all share.

    Or a ``tensor``, of which each thread has a row, some rows (``packed``), or which all share
    (``is_shared``).
    """

    items: Sequence[Any] | None = None
    value: Any = None
    tensor: Tensor | None = None
    packed: Packed | None = None
    is_shared: bool = False
    are_numbers: bool = False

    @property
    def are_objects(self) -> bool:
        return self.items is not None and not self.are_numbers

    @property
    def is_mapped(self) -> bool:
        """Whether each thread has a part of its own, or a tensor that all share."""
        return self.items is not None or self.tensor is not None

    @property
    def outline(self) -> object:
        """What can be told of it at a glance."""
        if self.tensor is not None:
            return Tensor if self.packed is None else Packed
        if self.are_numbers:
            return type(self.items[0]) if self.items else None
        return type(self.value) if self.items is None else frozenset(map(type, self.items))

    def tensors(self) -> list[Tensor]:
        """The tensor that a thread gets of it, if any; the largest one."""
        if self.tensor is None:
            return []
        if self.packed is not None:
            return [self.packed[int(self.packed.lengths.argmax())]]
        return [self.tensor if self.is_shared else self.tensor[0]]

    @property
    def is_as_it_is(self) -> bool:
        """Whether plain Python gets the caller's own object, which it only reads."""
        if self.tensor is None:
            return self.items is None
        return self.is_shared and self.tensor.device.type == "cpu" and not self.tensor.requires_grad

    @property
    def is_copied(self) -> bool:
        """Whether what is read of it is a thread's own: rows of a tensor."""
        return self.tensor is not None and not self.is_shared

    def read(self, attached: bool = False) -> Given:
        """What plain Python gets of a tensor, on the host at once: of rows, nobody else's.

        ``attached``: gradients of it go on to the tensor, which is on the host.
        """
        if self.tensor is None:
            return self
        if self.is_as_it_is or (attached and self.is_shared):
            return Given(value=self.tensor)
        if attached and self.tensor.requires_grad and self.packed is None:
            contiguous = partial(torch.clone, memory_format=torch.contiguous_format)
            return Given(list(map(contiguous, self.tensor.unbind())))
        host = self.tensor if attached else self.tensor.detach()
        if self.is_shared:
            return Given(value=host.to("cpu", copy=True))
        if self.packed is not None:
            rows = replace(self.packed, table=host.to("cpu"))
            return Given([rows[at].clone() for at in range(len(rows))])
        return Given(host.to("cpu", copy=True, memory_format=torch.contiguous_format).unbind())

    def share(self, contents: Contents, computes: bool) -> Share:
        """What it shares with the caller; containers of a thread's own are copied."""
        if self.tensor is not None:
            return TENSOR | (FOREIGN if computes and self.is_shared else NONE)
        if self.items is None:
            nature = contents.nature(self.value)
            return outer(self.value, nature, contents.arrays) | code(contents)
        if SCALARS.issuperset(map(type, self.items)):
            return NONE
        own = Contents(computes)
        nature = own.nature_of_any(self.items)
        contents.tensors += own.tensors
        contents.classes |= own.classes
        contents.callables += own.callables
        contents.modules += own.modules
        contents.leading |= own.leading
        contents.numpy |= own.numpy
        if own.arrays and ARRAYS.issuperset(map(type, self.items)):
            return ARRAY
        within = (ARRAY if own.arrays else NONE) | code(own)
        return OWNS[nature] | (OUTER_DEEP if own.has_instances else NONE) | within


def code(contents: Contents) -> Share:
    """What values share that have members of enumerations, which may have attributes."""
    return CODE if any(issubclass(kind, Enum) for kind in contents.classes) else NONE


def arguments(batch: Batch, options: Options) -> dict[int | str, Given] | None:
    """The arguments by place or name; None if one is nothing for plain Python."""
    found: dict[int | str, Given] = {}
    named: list[tuple[int | str, Any]] = [*enumerate(batch.args), *batch.kwargs.items()]
    for name, arg in named:
        given = argument(arg, options)
        if given is None:
            return None
        found[name] = given
    return found


def argument(arg: Any, options: Options) -> Given | None:
    """One argument as plain Python takes it; None if it is none of these."""
    if not isinstance(arg, Mapped):
        if isinstance(arg, Tensor):
            return Given(tensor=arg, is_shared=True) if is_readable(arg) else None
        return None if has_mapped(arg) else Given(value=arg)
    if isinstance(arg.data, list):
        return Given(arg.data)
    if isinstance(arg.data, Packed):
        is_fine = is_readable(arg.data.table)
        return Given(tensor=arg.data.table, packed=arg.data) if is_fine else None
    if not isinstance(arg.data, Tensor) or not is_readable(arg.data):
        return None
    if options.scalars != "python" or arg.data.dim() > 1:
        return Given(tensor=arg.data)
    if arg.data.requires_grad:
        return None
    return Given(arg.data.tolist(), are_numbers=True)


def is_readable(tensor: Tensor) -> bool:
    """Whether plain Python may ask a tensor for its numbers."""
    return (
        type(tensor) in (Tensor, Parameter)
        and tensor.layout is torch.strided
        and tensor.device.type in ("cpu", "cuda")
        and not is_wrapped(tensor)
    )


def is_opaque(value: Any) -> bool:
    """Whether something is within a value that may hold others, and of which there are no copies.

    An instance of a user's class, an iterator.
    """
    if type(value) in SCALARS:
        return False
    waiting, seen = [value], {id(value)}
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict) and type(each) in COPIED:
            parts = [*each, *each.values()]
        elif type(each) in COPIED or isinstance(each, tuple | frozenset):
            parts = list(each)
        elif isinstance(each, Tensor | np.ndarray | np.generic):
            continue
        else:
            return True
        for part in parts:
            if type(part) not in SCALARS and id(part) not in seen:
                seen.add(id(part))
                waiting.append(part)
    return False
