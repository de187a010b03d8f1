"""``register_converter``: batched forms that the user brings, with the contract of torch's own.

A rule is what ``torch.library.register_vmap`` takes, ``rule(info, in_dims, *args, **kwargs)``. Here
it becomes a rule of ``converters.registry``; what it gives is looked at, since a wrong dimension
would give each thread another one's result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor, nn

from autobatch.batching import converters
from autobatch.batching.effects import effect_of
from autobatch.batching.levels import (
    Batched,
    DrawError,
    ExampleError,
    NoRule,
    has_batched,
    leaves_of,
    map_tree,
)
from autobatch.compat import has_no_data, overloads_of, shown_name
from autobatch.errors import ConverterError, Diagnostic
from autobatch.random.drawing import spare
from autobatch.structure import own_attribute

R = TypeVar("R", bound=Callable[..., Any])
OPERATIONS = ("torch", "draw")
"""The effects of what can have a converter: torch's operators, and what is marked as one."""


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """What a rule is told: the thread count, and the option ``randomness``."""

    batch_size: int
    randomness: str


def register_converter(op: Any) -> Callable[[R], R]:
    """Give an operator a batched form of your own, as ``torch.library.register_vmap`` does.

    The decorated function is ``rule(info, in_dims, *args, **kwargs) -> (result, out_dims)``. It is
    called with the operator's arguments for all threads of a group at once:

    - ``info.batch_size`` is the thread count ``k``, ``info.randomness`` the option;
    - ``in_dims`` has an entry for each of ``args``, nested like it: 0 for a tensor ``[k, *E]`` of
      which each thread has a row, None for what all threads share;
    - ``result`` is the operator's result, nested likewise, ``out_dims`` where each tensor of it
      has the threads: a dimension, or None for one that is the same for all; one entry stands for
      the whole of its part.

    It must give what the plain loop gives, dtypes among it, and write nothing. ``NotImplemented``
    says that these arguments are none of its own: then all goes on as without it, as it does where
    a keyword argument differs by thread. It is looked up where programs call ``op``, before
    ``torch.vmap``'s rules. For a class of modules the module comes first among ``args``.

    Args:
        op: a function or method of torch's, a custom operator, its overloads together
            (``torch.ops.ns.name``) or one of them (``torch.ops.ns.name.default``), ``apply`` of an
            ``autograd.Function``, a class of ``torch.nn`` modules, or a function that
            ``autobatch.primitive`` has marked.

    Raises ``TypeError`` for anything else. While a program runs, a rule whose result does not fit,
    or that fails where one example does not, is a ``ConverterError``.
    """
    if not is_operation(op):
        raise TypeError(
            f"register_converter takes an operator of torch's or a custom one; {op!r} is none: "
            "its Python is lowered, or it runs thread by thread. autobatch.primitive(fn) makes "
            "an operation of a function."
        )

    def decorate(rule: R) -> R:
        if not callable(rule):
            raise TypeError(f"register_converter decorates a function; it got {rule!r}")
        converters.register(*overloads_of(op))(converter(op, rule))
        return rule

    return decorate


def is_operation(op: Any) -> bool:
    """Whether programs run calls of it as one operation."""
    if isinstance(op, type):
        return issubclass(op, nn.Module)
    return callable(op) and not isinstance(op, nn.Module) and effect_of(op) in OPERATIONS


def converter(op: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule of the user's as one of the registry's."""

    def converted(info: converters.Info, *args: Any, **kwargs: Any) -> Any:
        if has_batched(kwargs):
            return NotImplemented
        in_dims = map_tree(lambda leaf: 0 if type(leaf) is Batched else None, args)
        data = map_tree(lambda leaf: leaf.data if type(leaf) is Batched else leaf, args)
        try:
            given = rule(BatchInfo(info.k, info.randomness), in_dims, *data, **kwargs)
        except (NoRule, DrawError, ExampleError):
            raise
        except Exception as error:
            told = f"it raised {type(error).__name__}: {error}"
            if is_recording(args) or one_fails(op, args, kwargs, info.k):
                raise NoRule(told) from error
            raise fault(op, rule, told) from error
        if given is NotImplemented:
            return NotImplemented
        if not isinstance(given, tuple) or len(given) != 2:
            raise fault(op, rule, f"it gave {type(given).__name__}, not (result, out_dims)")
        return placed(op, rule, *given, info.k)

    return converted


def is_recording(args: Any) -> bool:
    return any(has_no_data(leaf.data) for leaf in leaves_of(args) if type(leaf) is Batched)


def one_fails(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], k: int) -> bool:
    """Whether the operator fails for an example too, so that its own error is to be told."""
    call, rest = (args[0], args[1:]) if isinstance(op, type) else (op, args)
    for row in range(k):
        own = map_tree(lambda leaf: leaf.data[row].clone() if type(leaf) is Batched else leaf, rest)  # noqa: B023
        try:
            with spare():
                call(*own, **kwargs)
        except Exception:
            return True
    return False


def placed(op: Any, rule: Any, result: Any, dims: Any, k: int) -> Any:
    """A result with ``Batched`` tensors where ``dims`` has a dimension."""
    if isinstance(result, tuple | list):
        own = dims if isinstance(dims, tuple | list) else [dims] * len(result)
        if len(own) != len(result):
            raise fault(op, rule, f"out_dims={dims!r} is not nested like its result")
        parts = [placed(op, rule, *pair, k) for pair in zip(result, own, strict=True)]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    if dims is None:
        return result
    if type(dims) is not int or not isinstance(result, Tensor):
        raise fault(op, rule, f"out_dims has {dims!r} for a result that is {looks(result)}")
    if not -result.dim() <= dims < result.dim() or result.shape[dims] != k:
        raise fault(op, rule, f"dimension {dims} of {looks(result)} is not the {k} threads'")
    # A row lies in memory as one example's result does, so that groups of threads are alike.
    return Batched(result if dims == 0 else result.movedim(dims, 0).contiguous())


def looks(result: Any) -> str:
    if isinstance(result, Tensor):
        return f"a tensor of shape {list(result.shape)}"
    return f"a {type(result).__name__}"


def fault(op: Any, rule: Any, what: str) -> ConverterError:
    name = own_attribute(rule, "__name__", repr(rule))
    return ConverterError(
        Diagnostic(
            f"The converter {name} of {shown_name(op)} is wrong: {what}.",
            hints=(
                "a rule gives (result, out_dims), the threads in the dimension that out_dims says.",
            ),
            code="converter",
        )
    )
