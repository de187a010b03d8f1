"""Errors about arguments that give no row to each example: what they are, and what to write.

In: an argument and how messages call it. Out: an ``OptionError``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from autobatch.errors import OptionError, UnknownOptionError

ALL_SHARED = (
    "at least one must be a tensor, an array, a list of numbers, autobatch.objects(...) or "
    "autobatch.ragged(...)"
)


def kind(value: Any) -> str:
    """What a value is, in a word or two."""
    if isinstance(value, Tensor | np.ndarray | np.generic) and not np.ndim(value):
        return f"0-d {'tensor' if isinstance(value, Tensor) else 'array'}"
    return type(value).__name__


def advice(value: Any) -> str:
    """How to give each example a part of a value that is not mapped; empty if there is no way."""
    if isinstance(value, list | tuple) and value and all(isinstance(v, Tensor) for v in value):
        return "torch.stack(...) makes one tensor of it, autobatch.ragged(...) takes any lengths"
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return "one of shape [B, ...] has a row for each example"
    if isinstance(value, bool | int | float):
        return (
            "torch.tensor([...]) makes a tensor of a list of numbers, which .batch takes as it is, "
            "autobatch.objects(...) gives each example one item of any list"
        )
    if isinstance(value, str | bytes):
        return "autobatch.objects([...]) gives each example one"
    if hasattr(value, "__array__"):
        return "numpy.asarray(...) makes an array of it"
    if isinstance(value, range):
        return "list(...) makes a list of numbers of it"
    if isinstance(value, Iterable):
        return "autobatch.objects(...) gives each example one of its items"
    return ""


def described(title: str, value: Any) -> str:
    told = advice(value)
    return f"{title} is of type {kind(value)}{f' ({told})' if told else ''}"


def nothing_mapped(name: str, titles: Sequence[str], values: Sequence[Any]) -> OptionError:
    """No argument of a call is mapped; what each of them is."""
    headline = f"No argument of {name} is mapped: {ALL_SHARED}, with in_dims other than None"
    if not values:
        return OptionError(f"{headline}; the call has no arguments.")
    each = "; ".join(map(described, titles, values))
    return OptionError(f"{headline}; {each}.")


def no_tensor(option: str, title: str, name: str, value: Any) -> OptionError:
    told = advice(value) or "wrap a sequence in autobatch.objects(...)"
    return OptionError(
        f"{option} maps the argument {title} of {name}, of type {kind(value)}, which is no tensor; "
        f"use None for it if all examples share it; {told}."
    )


def no_such_dimension(option: str, dim: Any, title: str, name: str, shape: Any) -> OptionError:
    if not len(shape):
        return OptionError(
            f"The argument {title} of {name} is a 0-d tensor, which has no dimension to map; "
            "pass x[None] for a batch of one, or in_dims=None for what all examples share."
        )
    return OptionError(
        f"{option} has dimension {dim} for the argument {title} of {name}, of shape {tuple(shape)}."
    )


def no_numbers(title: str, array: np.ndarray) -> OptionError:
    """An array of a dtype that torch has no tensors of."""
    if array.dtype.kind in "Mm":
        told = "its numbers are those of x.astype('int64')"
    else:
        told = "autobatch.objects(x) gives each example one of its items"
    if array.dtype.kind in "fc":  # long doubles
        told = f"x.astype({'float' if array.dtype.kind == 'f' else 'complex'}) rounds them"
    if array.dtype.kind == "O":
        told = f"x.astype(float) where all are numbers, else {told}"
    return UnknownOptionError(
        f"{title} is an array of dtype {array.dtype}, which no tensor has; {told}."
    )


def masked(title: str) -> OptionError:
    """A masked array, whose numbers beneath the mask would be taken for its own."""
    return UnknownOptionError(
        f"{title} is a masked array with entries that are masked, and a tensor has no mask; "
        "x.filled(0) and x.mask give its parts as two arrays."
    )


LISTED = 8
"""Items that a message lists."""


def sizes_differ(name: str, sizes: Sequence[tuple[str, int]]) -> OptionError:
    """Arguments of several batch sizes, by their names; of many, the first of each size first."""
    each = list(dict.fromkeys(sizes))
    if len(each) > LISTED:
        first = {size: title for title, size in reversed(each)}
        each.sort(key=lambda one: first[one[1]] != one[0])
    told = "say in_dims=(0, None) and the like where all examples share an argument"
    if len({title.partition("[")[0] for title, _ in each}) == 1:
        told = "autobatch.ragged(...) takes a list of tensors of different lengths"
    listed = shortened([f"{title} has {size}" for title, size in each])
    found = shortened(sorted({size for _, size in each}))
    return OptionError(
        f"The arguments of {name} have batch sizes [{found}]; "
        f"all mapped arguments must have the same: {listed}; {told}."
    )


def shortened(items: Sequence[object]) -> str:
    """Items side by side, of many the first ones."""
    some = [*map(str, items[:LISTED])]
    if len(items) > LISTED:
        some.append(f"... ({len(items)} in all)")
    return ", ".join(some)
