"""Recording: every torch function that an example calls becomes a node.

What is computed from weights alone is computed once. An index ``x[i]`` is an argument, not part
of the signature: lookups of all rows are alike, as DyNet's are. What has no shape before it
has run (``nonzero``) runs for its example alone, at once. Writes in place raise ``Unsupported``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from benchmarks.dynamic_batching.graph import Constant, Kind, Signature, Unsupported
from benchmarks.dynamic_batching.inference import Recorded, infer, operation_name
from benchmarks.dynamic_batching.lazy import Lazy
from benchmarks.dynamic_batching.values import Key, Known, Values, is_value

MAKES_VALUES = {"tensor", "as_tensor", "from_numpy", "new_tensor", "scalar_tensor"}
DRAWS = {"rand", "randn", "randint", "rand_like", "randn_like", "normal", "bernoulli"}
DRAWS |= {"multinomial", "dropout", "randperm"}


class Recorder(Values, TorchFunctionMode):
    """Adds to the graph what is called while it is active."""

    def __init__(self, known: Known, wait: Callable[[], None]) -> None:
        super().__init__(known, wait)
        self._handling = False
        self._from_weights: dict[Key, Any] = {}

    def _until_there(self, lazy: Lazy) -> None:
        if self.graph.buffer[lazy.value] >= 0:
            return
        inside, self._handling = self._handling, False
        if inside:  # torch took the mode off for this call; the other examples need it
            self.__enter__()
        self.wait()
        if inside:
            self.__exit__(None, None, None)
        self._handling = inside

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self._handling = True
        try:
            run = self.record if Lazy in types else self._called
            return run(function, args, kwargs or {})
        finally:
            self._handling = False

    def _called(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """A call without lazy values."""
        name = operation_name(function)
        if name in MAKES_VALUES:
            return self.leaf(function(*args, **kwargs))
        if name in ("get", "set"):  # an attribute of a tensor that is there
            return function(*args, **kwargs)
        if name not in DRAWS and self._of_weights(name, args, kwargs):
            return self._once(function, args, kwargs)
        return self.record(function, args, kwargs)

    def _of_weights(self, name: str, args: Any, kwargs: dict[str, Any]) -> bool:
        """Whether all tensors are shared ones, and this is not a lookup in one."""
        if any(is_value(leaf) for leaf in _leaves((args, kwargs))):
            return False
        return not (name == "getitem" and type(args[1]) is int and args[0].dim())

    def _once(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        _refuse_writes(operation_name(function), kwargs)
        key: list[Any] = [function]
        try:
            self.collect(args, key, [])
            self.collect(tuple(kwargs.items()), key, [])
            hashed = tuple(key)
            known = hashed in self._from_weights
        except TypeError:  # unhashable arguments: nothing to look it up by
            return function(*args, **kwargs)
        if not known:
            found = self._from_weights[hashed] = function(*args, **kwargs)
            for number, tensor in enumerate(_leaves(found)):
                if isinstance(tensor, Tensor):
                    self._tokens.setdefault(id(tensor), (hashed, number))
        return self._from_weights[hashed]

    def record(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A node for a call with lazy values: its outputs, lazy, in the call's structure."""
        key: list[Any] = [function]
        values: list[int] = []
        if function is _GETITEM:
            args = (args[0], self._with_bounds(args[1]))
        index = _index_of_lookup(function, args)
        if index is not None:
            self.collect(args[:1], key, values)
            values.append(index.value if type(index) is Lazy else self.graph.number(index))
        else:
            self.collect(args, key, values)
            for name, argument in kwargs.items():
                key.append(name)
                self.collect((argument,), key, values)
        hashed = tuple(key)
        known = self.known.by_key
        if hashed in known:
            signature = known[hashed]
        else:
            is_draw = not values  # a draw has no argument to take its rows from
            signature = None if is_draw else self._infer(function, args, kwargs, index)
            known[hashed] = signature
        if type(signature) is not Signature:
            is_constant = isinstance(signature, Constant)
            return signature.value if is_constant else self._at_once(function, args, kwargs)
        first = self.graph.add(signature, values)
        if signature.container is None:
            return Lazy(self, first, signature.kinds[0])
        outputs = [Lazy(self, first + i, kind) for i, kind in enumerate(signature.kinds)]
        return signature.container(outputs)

    def _with_bounds(self, index: Any) -> Any:
        """An index whose slices have numbers for bounds: they say what shape comes out."""
        if type(index) is tuple:
            return tuple(map(self._with_bounds, index))
        if type(index) is not slice:
            return index
        ends = (index.start, index.stop, index.step)
        return slice(*(int(end) if type(end) is Lazy else end for end in ends))

    def _infer(
        self, function: Any, args: Any, kwargs: dict[str, Any], index: Any
    ) -> Signature | Constant | None:
        """None: cannot be batched; such a call runs for its example alone, at once."""
        _refuse_writes(operation_name(function), kwargs)
        if index is not None:
            args = (args[0], self.leaf(torch.zeros((), dtype=torch.int64)))
        columns: list[Kind] = []
        shared: list[Tensor] = []
        args, kwargs = self.slotted((args, kwargs), columns, shared)
        tokens = tuple(self.token(tensor) for tensor in shared)
        is_lookup = index is not None
        recorded = Recorded(function, args, kwargs, tuple(columns), shared, tokens, is_lookup)
        try:
            with torch._C.DisableTorchFunction(), torch.no_grad():
                found = infer(recorded, self.kind_of, len(self.known.signatures))
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            return None
        if isinstance(found, Signature):
            self.known.signatures.append(found)
        return found

    def _at_once(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """The call on the tensors themselves, for this example only."""
        args, kwargs = self.forced(args), self.forced(kwargs)
        with torch._C.DisableTorchFunction():
            found = function(*args, **kwargs)
        if isinstance(found, Tensor):
            return self.leaf(found)
        if type(found) in (tuple, list):
            return type(found)([self.leaf(x) if isinstance(x, Tensor) else x for x in found])
        return found


def _index_of_lookup(function: Any, args: tuple[Any, ...]) -> Any:
    """The index of ``x[i]``, None where this is something else; negative ones made positive."""
    if function is not _GETITEM or not (type(args[1]) is int or type(args[1]) is Lazy):
        return None
    source, index = args
    with torch._C.DisableTorchFunction():
        shape = source.shape
    if type(index) is Lazy:
        is_index = not index.kind.shape and index.kind.dtype is torch.int64
        return index if is_index and shape else None
    if not shape or not -shape[0] <= index < shape[0]:
        raise IndexError(f"index {index} is out of bounds for shape {tuple(shape)}")
    return index % shape[0]


_GETITEM = Tensor.__getitem__


def _leaves(value: Any) -> Iterator[Any]:
    if type(value) in (tuple, list):
        for part in value:
            yield from _leaves(part)
    elif type(value) is dict:
        yield from _leaves(list(value.values()))
    else:
        yield value


def _refuse_writes(name: str, kwargs: dict[str, Any]) -> None:
    if name.endswith("_") or name == "setitem" or "out" in kwargs:
        raise Unsupported(f"{name} writes in place, and a graph of lazy values has no state")
