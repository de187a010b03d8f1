"""The transforms as the user calls them; for one example each is ``torch.func``'s own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from autobatch.arguments.spelling import suggesting
from autobatch.errors import note_within_vmap
from autobatch.structure import own_attribute
from autobatch.transforms.records import Made, Transform, transform_of

F = TypeVar("F", bound=Callable[..., Any])
Function = Callable[..., Any]
Argnums = int | tuple[int, ...]


def transform(kind: str) -> Callable[[F], F]:
    """Mark a function as a transform, by which programs that call it know it."""

    def mark(make: F) -> F:
        make.__autobatch__ = "transform"  # type: ignore[attr-defined]
        make.__autobatch_kind__ = kind  # type: ignore[attr-defined]
        return make

    return mark


def derived(made: Transform, func: Function, alone: Function) -> Function:
    """``func`` transformed; ``alone`` is what that does where no program calls it."""

    def transformed(*args: Any, **kwargs: Any) -> Any:
        return of_one(alone, *args, **kwargs)

    if isinstance(own_attribute(func, "__name__"), str):
        functools.update_wrapper(transformed, func, updated=())
    transformed.__autobatch_transform__ = Made(made, func, transformed)  # type: ignore[attr-defined]
    return transformed


def of_one(alone: Function, *args: Any, **kwargs: Any) -> Any:
    """A call outside programs, of one example."""
    try:
        return alone(*args, **kwargs)
    except RuntimeError as error:
        note_within_vmap(error)
        raise


def checked(func: Any, name: str) -> None:
    if not callable(func):
        raise TypeError(f"autobatch.{name} takes a function; it got {func!r}")


@transform("grad")
@suggesting
def grad(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """The gradient of a function of one example that returns a 0-d tensor.

    ``autobatch.vmap(autobatch.grad(f))(xs)`` gives every example's gradient, whatever control
    flow ``f`` has; ``autobatch.grad`` may also be called inside a program. It composes with itself,
    with the other transforms, and with ``autobatch.vmap`` in both orders.

    Args:
        func: returns a 0-d tensor; with ``has_aux`` a pair of it and other tensors.
        argnums: which positional argument to differentiate (a tensor ``[*E]``, or a tree of
            them), or a tuple of several.
        has_aux: whether ``func`` returns a pair ``(output, aux)``.

    Returns:
        A function with ``func``'s arguments. It gives the gradient, in the structure of the
        argument, a tuple of them for several; with ``has_aux`` ``(gradient, aux)``. An argument
        that all examples share (``in_dims=None``) has a gradient ``[B, *E]``, one for each.

    Raises what ``torch.func.grad`` raises: where the output is no 0-d tensor (RuntimeError), or an
    argument no floating-point tensor.
    """
    checked(func, "grad")
    alone = torch.func.grad(func, argnums, has_aux)
    return derived(transform_of(grad, (argnums, has_aux), {}), func, alone)


@transform("value_and_grad")
@suggesting
def value_and_grad(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """The value of a function and its gradient, from one run; see ``grad``.

    ``torch.func.grad_and_value`` gives the gradient first; so it does inside a program.

    Returns:
        A function with ``func``'s arguments that gives ``(value, gradient)``, with ``has_aux``
        ``((value, aux), gradient)``.
    """
    checked(func, "value_and_grad")
    both = torch.func.grad_and_value(func, argnums, has_aux)

    def alone(*args: Any, **kwargs: Any) -> Any:
        gradient, value = both(*args, **kwargs)
        return value, gradient

    return derived(transform_of(value_and_grad, (argnums, has_aux), {}), func, alone)


@transform("jacrev")
@suggesting
def jacrev(
    func: Function,
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Function:
    """The Jacobian of a function of one example, in reverse mode: a pullback for each output.

    Args:
        func: returns a tensor ``[*O]`` or a tree of them; with ``has_aux`` a pair with others.
        argnums: which positional argument ``[*E]`` to differentiate, or a tuple of several.
        has_aux: whether ``func`` returns a pair ``(output, aux)``.
        chunk_size: how many elements of the output are pulled back at once; None for all.

    Returns:
        A function with ``func``'s arguments. It gives ``[*O, *E]`` in the structure of the output,
        and within that of the argument; with ``has_aux`` ``(jacobian, aux)``.
    """
    checked(func, "jacrev")
    alone = torch.func.jacrev(func, argnums, has_aux=has_aux, chunk_size=chunk_size)
    options = {"has_aux": has_aux, "chunk_size": chunk_size}
    return derived(transform_of(jacrev, (argnums,), options), func, alone)


@transform("jacfwd")
@suggesting
def jacfwd(
    func: Function,
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
) -> Function:
    """The Jacobian of a function of one example, in forward mode: a tangent for each input.

    ``randomness`` is ``torch.func.jacfwd``'s; under ``autobatch.vmap``, its own option says what
    draws mean. All else is as in ``jacrev``.
    """
    checked(func, "jacfwd")
    alone = torch.func.jacfwd(func, argnums, has_aux, randomness=randomness)
    options = {"randomness": randomness}
    return derived(transform_of(jacfwd, (argnums, has_aux), options), func, alone)


@transform("hessian")
@suggesting
def hessian(func: Function, argnums: Argnums = 0) -> Function:
    """The second derivative of a function of one example: ``jacfwd(jacrev(func))``.

    Returns:
        A function with ``func``'s arguments that gives ``[*O, *E, *E]``.
    """
    checked(func, "hessian")
    return derived(transform_of(hessian, (argnums,), {}), func, torch.func.hessian(func, argnums))


@transform("vjp")
@suggesting
def vjp(func: Function, *primals: Any, has_aux: bool = False) -> Any:
    """The output of a function, and the function that pulls cotangents of it back.

    Args:
        func: returns a tensor or a tree of them; with ``has_aux`` a pair with others.
        *primals: its arguments, trees of floating-point tensors.
        has_aux: whether ``func`` returns a pair ``(output, aux)``.

    Returns:
        ``(output, pull)``, with ``has_aux`` ``(output, pull, aux)``. ``pull(cotangents)``, in the
        structure of the output, gives a tuple with a cotangent for each primal. Inside a program
        ``pull`` runs ``func`` once more: threads may have parted since.
    """
    return of_one(torch.func.vjp, func, *primals, has_aux=has_aux)


@transform("jvp")
@suggesting
def jvp(
    func: Function, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False
) -> Any:
    """The output of a function, and its derivative along tangents of its arguments.

    Args:
        func: returns a tensor or a tree of them; with ``has_aux`` a pair with others.
        primals, tangents: tuples of arguments and of their tangents, which have their structure.
        strict: whether an output that does not depend on the primals is an error.
        has_aux: whether ``func`` returns a pair ``(output, aux)``.

    Returns:
        ``(output, tangent)``, with ``has_aux`` ``(output, tangent, aux)``.
    """
    return of_one(torch.func.jvp, func, primals, tangents, strict=strict, has_aux=has_aux)
