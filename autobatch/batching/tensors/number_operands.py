"""Python numbers as operands of torch's functions: ``torch.sin(2.0)`` is a ``TypeError``.

A column of numbers is a tensor here, which such a function takes, and of which it may make another
dtype. So it is called once, for each kind of operands, with a number in the place of each column of
them and tensors without data.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from autobatch.batching.effects import belongs_to_torch, effect_of, torch_functions
from autobatch.batching.levels import Batched, leaves_of
from autobatch.batching.trees import SAMPLES, is_plain, tensor_dtype
from autobatch.compat import outside_everything
from autobatch.values.cells import Cell, Column, Container, Uniform, read
from autobatch.values.heap import walks


class Unknown(Exception):
    """An operand of which there is no sample."""


NUMBERS: dict[str, Any] = {"bool": False, "int": 0, "float": 0.0}
"""What else a column may hold where its sample is refused: ``dim=1`` of a vector."""


SUBTRACTIONS = frozenset(
    {
        *(operator.sub, operator.isub, torch.sub, torch.subtract, torch.rsub, Tensor.sub),
        *(Tensor.sub_, Tensor.subtract, Tensor.subtract_, Tensor.__sub__, Tensor.__rsub__),
        Tensor.__isub__,
    }
)


def subtracts_bools(function: Callable[..., Any], cells: list[Cell]) -> RuntimeError | None:
    """What torch says of ``x - (n > 0)`` of a tensor and a Python bool; None where it is not that.

    Tensors without data do not say it.
    """
    bools = [type(value) is Column and value.tag == "bool" for value in map(read, cells)]
    like = tensor_dtype(cells) if function in SUBTRACTIONS and any(bools) else None
    if like is None:
        return None
    with outside_everything():
        try:
            torch.zeros((), dtype=like, device="cpu") - True
        except RuntimeError as error:
            return RuntimeError(*error.args)
    return None


def refused_numbers(
    function: Callable[..., Any], args: list[Cell], kwargs: dict[str, Cell]
) -> Exception | None:
    """What torch says of numbers where it wants tensors; None where it takes them."""
    expected = answer(function, args, kwargs)
    if expected is not None and expected.error is not None:
        return TypeError(*expected.error.args)
    return subtracts_bools(function, args)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a function of torch's makes of numbers: an error, or leaves of these types or dtypes.

    None for the leaves: it has refused the samples by their values.
    """

    error: TypeError | None = None
    leaves: tuple[Any, ...] | None = ()

    def fits(self, out: Any) -> bool:
        """Whether a batched result is of the same dtypes, and tells nothing of the operands."""
        leaves = tuple(map(dtype_of, leaves_of(out)))
        return leaves == self.leaves and all(isinstance(leaf, torch.dtype) for leaf in leaves)


def answer(
    function: Callable[..., Any], args: Sequence[Cell], kwargs: dict[str, Cell]
) -> Answer | None:
    """What torch makes of these operands, some of them numbers; None where nobody knows."""
    if function not in torch_functions() and not is_torchs_python(function):
        return None
    try:
        keys = tuple(map(key_of, args)), tuple((n, key_of(kwargs[n])) for n in kwargs)
        return _answer(_Call(function, torch.get_default_dtype(), *keys))
    except (Unknown, TypeError):  # one that is unhashable
        return None


def is_torchs_python(function: Callable[..., Any]) -> bool:
    """Whether it is Python of torch's, which may hand on what it gets: ``tree_leaves((x, n))``."""
    is_python = type(function) is FunctionType and belongs_to_torch(function)
    return is_python and effect_of(function) == "torch"


@dataclass(frozen=True, slots=True)
class Like:
    """A tensor for one example."""

    dtype: torch.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Parts:
    """A list, tuple, dict or slice of operands."""

    kind: Any
    items: tuple[Any, ...]
    names: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Plain:
    """A Python object; ``True`` is not the same as ``1``. ``varies``: it is a column's sample."""

    kind: type
    obj: Any
    varies: bool = False


@dataclass(frozen=True, slots=True)
class _Call:
    function: Callable[..., Any]
    default: torch.dtype
    args: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...] = field(default=())


def key_of(cell: Cell) -> Any:
    if walks.holds_itself(cell):
        raise Unknown
    return _key_of(cell)


def _key_of(cell: Cell) -> Any:
    value = read(cell)
    match value:
        case Column(tag="tensor"):
            return Like(value.table.dtype, tuple(value.event_shape))
        case Column(tag=tag):
            return Plain(type(SAMPLES[tag]), SAMPLES[tag], True)
        case Uniform(obj=Tensor() as obj):
            return Like(obj.dtype, tuple(obj.shape))
        case Uniform(obj=obj) if is_plain(obj):
            return Plain(type(obj), obj)
        case Container(type=kind) if kind in (list, tuple, dict, slice):
            names = tuple(value.cells) if isinstance(value.cells, dict) else ()
            return Parts(kind, tuple(map(_key_of, value.children())), names)
    raise Unknown


def sample(key: Any, others: Mapping[str, Any]) -> Any:
    match key:
        case Like(dtype, shape):
            return torch.empty(shape, dtype=dtype, device="meta")
        case Parts(kind, items, names):
            made = [sample(item, others) for item in items]
            if kind is dict:
                return dict(zip(names, made, strict=True))
            return slice(*made) if kind is slice else kind(made)
        case Plain(kind, _, True):
            return others.get(kind.__name__, key.obj)
    return key.obj


@lru_cache(maxsize=4096)
def _answer(call: _Call) -> Answer | None:
    with outside_everything():
        for others in ({}, NUMBERS):
            named = {name: sample(key, others) for name, key in call.named}
            try:
                out = call.function(*(sample(key, others) for key in call.args), **named)
            except TypeError as error:
                return Answer(error.with_traceback(None))
            except NotImplementedError:  # there is no kernel without data
                return None
            except Exception:  # one that depends on values: those of each thread say what it is
                continue
            return Answer(None, tuple(map(dtype_of, leaves_of(out))))
    return Answer(None, None)


def dtype_of(leaf: Any) -> Any:
    """What a leaf of a result is: a tensor's dtype, or a class."""
    data = leaf.data if type(leaf) is Batched else leaf
    return data.dtype if isinstance(data, Tensor) else type(data)
