"""Decorators of nested functions that take on the names of what they wrap."""

from __future__ import annotations

import copy
import functools
import pickle

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop

NUMBERS = torch.tensor([3, 1, 2])


def decorated(n):
    def twice(f):
        @functools.wraps(f)
        def g(*args):
            return f(*args) * 2

        return g

    @twice
    def h(x):
        return x + 1

    return h(n)


def wrapped_by_hand(n):
    def g(x):
        return x * 2

    def h(x):
        return x + 1

    functools.update_wrapper(g, h)
    return g(n) + h(n)


def names(n):
    def f(x):
        return x

    @functools.wraps(f)
    def g(x):
        return x + n

    return g(n), g.__name__


def wrapped_in_some(n):
    def h(x):
        return x + 1

    if n > 1:

        @functools.wraps(h)
        def g(x):
            return h(x) * 5

        return g(n)
    return h(n)


@pytest.mark.parametrize("program", [decorated, wrapped_by_hand, names, wrapped_in_some])
def test_the_wrapper_runs(program):
    assert_matches_loop(program, (NUMBERS,))


def doubling(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args) * 2

    return wrapper


@doubling
@autobatch.function
def above_function(x):
    return x if x > 1 else -x


@doubling
@autobatch.vmap
def above_vmap(x):
    return x if x > 1 else -x


VALIDATED = torch.distributions.Distribution._validate_args


@torch.compile
def compiled(x):
    return x * 3 if x > 1 else -x


# The first use of torch.compile switches the validation of distributions off, for all of a process.
torch.distributions.Distribution.set_default_validate_args(VALIDATED)

above_compiled = doubling(compiled)


class Compiled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 3

    @torch.compile
    def forward(self, x):
        return x * self.scale if x > 1 else self.other(x)

    @torch.compiler.disable
    def other(self, x):
        return -x


OUTER = [above_function, compiled, above_compiled, Compiled(), Compiled().forward]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("called", [False, True], ids=["mapped", "called"])
@pytest.mark.parametrize(
    "function", OUTER, ids=["function", "compiled", "above", "module", "method"]
)
def test_what_is_decorated_before(function, called):
    """A decorator around ours takes on its attributes; what is compiled computes the same."""
    program = (lambda x: function(x) + 1) if called else function
    with torch.compiler.set_stance("force_eager"):
        assert_matches_loop(program, (NUMBERS,))


def test_a_module_that_is_compiled():
    whole = torch.compile(Compiled())
    assert torch.equal(autobatch.vmap(whole)(NUMBERS), torch.tensor([9, -1, 6]))
    assert torch.equal(autobatch.vmap(lambda x: whole(x) + 1)(NUMBERS), torch.tensor([10, 0, 7]))


def test_explain_looks_at_a_decorator_around_vmap(capsys):
    autobatch.explain(above_vmap, NUMBERS[:, None])
    assert "function(*args) * 2" in capsys.readouterr().out


def test_pickles_have_functions_by_name():
    function = own = pickled_halve
    assert pickle.loads(pickle.dumps(function)) is function
    assert copy.deepcopy(function) is function
    batch = pickle.loads(pickle.dumps(function.batch))
    assert torch.equal(batch(NUMBERS), function.batch(NUMBERS))
    own = pickle.loads(pickle.dumps(function.with_options(executor="vmap", seed=3)))
    assert own.options == function.with_options(executor="vmap", seed=3).options
    assert torch.equal(own.batch(NUMBERS), function.batch(NUMBERS))
    renamed = pickle.loads(pickle.dumps(autobatch.function(plain_halve)))
    assert renamed(3) == 1 and renamed.options == autobatch.Options()
    for whole in (torch.nn.Linear(1, 1), functools.partial(plain_halve)):
        assert pickle.loads(pickle.dumps(autobatch.function(whole))).options == renamed.options
        assert copy.deepcopy(autobatch.function(whole)).batch(torch.ones(2, 1)).shape == (2, 1)
    method = pickle.loads(pickle.dumps(Scaled(3).forward))
    assert torch.equal(method.batch(NUMBERS), torch.tensor([9, 3, 6]))


@autobatch.function
def pickled_halve(x):
    return x // 2


def plain_halve(x):
    return x // 2


class Scaled:
    def __init__(self, scale):
        self.scale = scale

    @autobatch.function
    def forward(self, x):
        return x * self.scale


def halved_until_small(x):
    x = x * 1.0
    while x > 1:
        x = x / 2
    return x


def test_what_calls_a_batch_may_be_compiled():
    """The compiler keeps off the batch: it is what is around that is compiled."""
    decorated = autobatch.function(halved_until_small)
    for batch in (autobatch.vmap(halved_until_small), decorated.batch):
        around = torch.compile(lambda xs, batch=batch: batch(xs + 1) * 2, backend="eager")
        expected = torch.stack([halved_until_small(x + 1) * 2 for x in NUMBERS])
        for _ in range(3):
            assert torch.equal(around(NUMBERS), expected)


class Own:
    def __init__(self, k):
        self.k = k

    @autobatch.function
    def by(self, x):
        return x * self.k

    @autobatch.function
    def plus(self, x):
        return x + self.k


def test_a_decorated_method_is_equal_for_one_instance():
    one, other = Own(2.0), Own(2.0)
    assert one.by == one.by
    assert hash(one.by) == hash(one.by)
    assert len({one.by, one.by, other.by, one.plus, Own.by, Own.plus}) == 5
    assert one.by != other.by
    assert one.by.with_options(scalars="python") != one.by
    assert one.by.batch(torch.ones(3)).tolist() == [2.0] * 3
