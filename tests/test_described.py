"""What nested functions tell of themselves: their names, text, defaults and signatures."""

# ruff: noqa: E731
# What users write, idiomatic or not, is what these are for.

import functools
import inspect

import pytest
import torch

import autobatch
from autobatch.batching.foreign import parts
from tests.oracle import assert_matches_loop

XS = torch.tensor([1.5, -2.0, 0.0, 3.0])
NS = torch.tensor([3, 0, 1, 2])


def told(x, n):
    def g(a, b=2, *, c=3):
        """What it does.

        More of it.
        """
        return a

    return g.__doc__, str(g.__defaults__), str(g.__kwdefaults__), g.__name__, g.__qualname__


def shown(x, n):
    def g(a):
        return a

    return repr(g).split(" at ")[0], str(g)[-1], f"{g!s:.9}"


def of_a_lambda(x, n):
    g = lambda a, b=1: a + b
    return g.__name__, g.__qualname__, g.__doc__, str(g.__defaults__), str(inspect.signature(g))


def signed(x, n):
    def g(a, /, b=n, *rest, c, d=(1,), **more):
        return a

    found = inspect.signature(g)
    return list(found.parameters), found.parameters["b"].default, str(found.parameters["d"])


def of_its_own(x, n):
    def g(a, b=n):
        return a + b

    def h(a, b=2):
        "another"
        return a * b

    f = g if n > 1 else h
    return f.__name__, str(f.__doc__), f.__defaults__[0] * x, f(x)


def wrapped(x, n):
    def deco(f):
        @functools.wraps(f)
        def inner(*args, **kwargs):
            inner.calls += 1
            return f(*args, **kwargs)

        inner.calls = 0
        return inner

    @deco
    def square(a):
        "squares"
        return a * a

    r = square(x)
    if n > 1:
        r = square(r)
    return r, square.calls, square.__name__, square.__doc__, str(inspect.signature(square))


PROGRAMS = (told, shown, of_a_lambda, signed, of_its_own, wrapped)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_nested_function_is_described_as_python_describes_it(program):
    assert_matches_loop(program, (XS, NS), batch_sizes=[1, 4])


def annotated(x):
    def g(a: int) -> float:
        return a

    return str(inspect.signature(g))


def test_no_signature_without_its_annotations():
    with pytest.raises(ValueError, match="no signature found"):
        autobatch.vmap(annotated)(XS)


class Proxy:
    """Has any attribute, ``__dict__`` among them."""

    __slots__ = ()

    def __getattr__(self, name):
        return lambda *args: name


PROXY = Proxy()


def test_what_has_any_attribute_stands_in_no_way():
    """A write to a function's attributes looks for the function among what existed before."""
    assert parts([PROXY]) == [PROXY] and parts(PROXY) == []

    def noted(x, holder):
        def inner(a):
            return a * 2

        inner.named = holder[0].anything()
        return inner(x), inner.named

    doubled, named = autobatch.vmap(noted, in_dims=(0, None))(torch.arange(3.0), [PROXY])
    assert doubled.tolist() == [0.0, 2.0, 4.0] and named == ["anything"] * 3
