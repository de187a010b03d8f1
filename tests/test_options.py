"""Options and arguments that cannot be: clear errors that name them. Limits and fallbacks."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import warnings
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import autobatch
from autobatch import DepthLimitError, FallbackError, FallbackWarning, OptionError, StepLimitError

BOTH_ENGINES = ("stackless", "sequential")
BAD = {
    "engine": ("fast", "'stackless', 'program_counter', 'sequential'"),
    "executor": (3, "'auto', 'traced', 'vmap', 'compiled', 'cudagraph', or an executor object"),
    "scalars": ("numpy", "'tensor', 'python'"),
    "fallback": ("never", "'allow', 'warn', 'error'"),
    "randomness": ("any", "'error', 'different', 'same'"),
    "max_steps": (0, "at least 1 or None"),
    "max_depth": (0, "at least 1 or None"),
    "fork": (True, "'auto', 'off'"),
    "max_width": (0, "at least 1"),
    "schedule": ("latest", "'earliest', 'most_threads'"),
    "chunk_size": (2.5, "at least 1 or None"),
    "trace_after": (-1, "at least 0"),
    "listeners": (3, "a callable"),
    "in_dims": ("all", "an int, or None"),
    "out_dims": (1.0, "an int, or None"),
    "on_error": ("ignore", "'raise', 'isolate'"),
    "seed": (0.5, "an int"),
    "thread_offset": (-1, "at least 0"),
    "passes": ("simplify", "a list of passes or of their names"),
    "ragged_out": ("padded", "'nested', 'list', 'pad'"),
    "save": ("everything", "'keep'"),
    "stateful": ("once", "'refuse', 'sequential'"),
    "fast_math": ("yes", "True or False"),
    "plain": ("always", "'auto', 'never'"),
}


def double(x):
    return x * 2


def countdown(n):
    while n > 0:
        n = n - 1
    return n


def depth(n):
    return 0 if n == 0 else 1 + depth(n - 1)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_value_is_named(name):
    value, allowed = BAD[name]
    for use in (autobatch.function(double).with_options, lambda **o: autobatch.function(**o)):
        with pytest.raises(OptionError) as caught:
            use(**{name: value})
        assert name in str(caught.value) and repr(value) in str(caught.value)
        assert allowed in str(caught.value)


def test_every_option_has_a_bad_value_here():
    assert BAD.keys() == set(autobatch.Options.__slots__)


@pytest.mark.parametrize(
    "name, value",
    [("max_steps", True), ("chunk_size", "2"), ("trace_after", None), ("listeners", [print, 3])],
)
def test_more_bad_values(name, value):
    with pytest.raises(OptionError, match=name):
        autobatch.vmap(double, **{name: value})


@pytest.mark.parametrize("name", [name for name in BAD if name != "passes"])
def test_an_array_as_a_value_is_named(name):
    for value in (np.ones(2), torch.ones(2)):
        with pytest.raises(OptionError, match=name):
            autobatch.function(double).with_options(**{name: value})


def test_counts_may_be_numpys():
    three = np.int64(3)
    for name in ("max_steps", "max_depth", "trace_after", "chunk_size", "max_width", "seed"):
        twice = autobatch.vmap(double, **{name: three})
        assert twice(torch.arange(5)).tolist() == [0, 2, 4, 6, 8]
    with pytest.raises(OptionError, match="chunk_size is 0"):
        autobatch.vmap(double, chunk_size=np.int64(0))


def test_an_unknown_option_is_named_with_the_known_ones():
    for use in (autobatch.function, autobatch.function(double).with_options):
        with pytest.raises(TypeError, match=r"no option 'batchsize'.*chunk_size"):
            use(batchsize=3)
    with pytest.raises(OptionError, match="no option 'speed'"):
        autobatch.vmap(double, speed="high")


def test_a_slip_of_the_pen_is_told_the_option_that_it_means():
    with pytest.raises(OptionError, match="no option 'scalar'; did you mean 'scalars'"):
        autobatch.vmap(double, scalar="python")


@autobatch.function
def halved(x):
    return x / 2 if x > 1 else x


class Scale:
    by = 3.0

    @autobatch.function
    def of(self, x):
        return x * self.by


def test_functions_are_pickled_and_copied_as_pythons_are():
    for each in (halved, Scale.of):
        assert pickle.loads(pickle.dumps(each)) is each
        assert copy.deepcopy(each) is each
    scale = Scale()
    other = copy.deepcopy([scale, scale.of])
    other[0].by = 5.0
    assert other[1].batch([2.0]).tolist() == [10.0]
    assert scale.of.batch([2.0]).tolist() == [6.0]
    python = pickle.loads(pickle.dumps(halved.with_options(scalars="python")))
    assert python.options.scalars == "python"
    assert python.batch([3]).dtype is torch.float64


def test_what_a_copy_has_said_is_what_the_function_has():
    for options in ({"chunk_size": 2}, {"randomness": "error"}, {"save": autobatch.Offload(2**30)}):
        of = halved.with_options(**options)
        for same in (pickle.loads(pickle.dumps(of)), copy.copy(of), copy.deepcopy(of)):
            assert same.options == of.options and same.options.said == options
            assert type(same.options.randomness) is type(of.options.randomness)


def test_what_is_decorated_twice_keeps_what_it_does_not_say():
    assert autobatch.function(quotient).options == quotient.options
    twice = autobatch.function(scalars="tensor", in_dims=0)(quotient)
    assert twice.options == quotient.with_options(scalars="tensor", in_dims=0).options
    assert not twice.batch(torch.arange(3))[1].any()


@autobatch.function(scalars="python", chunk_size=2, in_dims=1)
def quotient(n):
    return n // 2, isinstance(n, int)


def inside(x):
    """What it calls is a batch of its own, with the options of the function."""
    return autobatch.vmap(quotient)(x)[0] + 1


def test_the_options_of_a_decorated_function_hold_wherever_it_is_mapped():
    ns = torch.arange(5)
    for batched in (quotient.with_options(in_dims=0).batch, autobatch.vmap(quotient)):
        found, are_ints = batched(ns)
        assert found.tolist() == [0, 0, 1, 1, 2] and are_ints.all()
    assert [item for _, item in autobatch.stream(quotient, ns, order="input")] == [
        (n // 2, True) for n in range(5)
    ]
    assert autobatch.vmap(quotient, scalars="tensor")(ns)[1].tolist() == [False] * 5
    seen = []
    autobatch.vmap(quotient, listeners=seen.append)(ns)
    assert max(int(step.mask.sum()) for step in seen) == 2
    rows = torch.arange(12).reshape(3, 4)
    assert torch.equal(autobatch.vmap(inside)(rows), rows // 2 + 1)
    limited = autobatch.function(max_steps=3)(countdown)
    for run in (limited.batch, autobatch.vmap(limited)):
        with pytest.raises(StepLimitError):
            run(torch.tensor([9.0]))
    assert autobatch.vmap(limited, max_steps=None)(torch.tensor([9.0])) == 0


def test_a_seed_implies_that_draws_differ():
    """The default reads as in ``torch.vmap``; said with a seed it is a contradiction."""
    ours, torchs = (inspect.signature(each).parameters for each in (autobatch.vmap, torch.vmap))
    for name in ("in_dims", "out_dims", "randomness", "chunk_size"):
        assert ours[name].default == torchs[name].default
    draws = autobatch.vmap(lambda x: x + torch.rand(()), seed=3)
    assert len(set(draws(torch.zeros(4)).tolist())) == 4
    with pytest.raises(OptionError, match="randomness is 'error'; with a seed"):
        autobatch.vmap(double, randomness="error", seed=3)
    with pytest.raises(OptionError, match="randomness is None; it must be one of"):
        autobatch.vmap(double, randomness=None)


def test_batch_sizes_that_disagree():
    with pytest.raises(OptionError, match=r"batch sizes \[2, 3\]"):
        autobatch.function(lambda x, y: x + y).batch(torch.ones(2), torch.ones(3))


def test_of_many_batch_sizes_some_are_told():
    """The first argument of each size stands first."""
    odd = [torch.ones(6 if n == 40 else 5) for n in range(64)]
    with pytest.raises(OptionError, match=r"'xs'\[0\] has 5, 'xs'\[40\] has 6, .*64 in all"):
        autobatch.vmap(lambda xs: xs[0])(odd)
    unlike = [torch.ones(n + 1) for n in range(64)]
    with pytest.raises(OptionError, match=r"batch sizes \[1, 2, .*64 in all.*ragged") as raised:
        autobatch.vmap(lambda xs: xs[0])(unlike)
    assert len(str(raised.value)) < 500


def test_in_dims_that_do_not_fit():
    with pytest.raises(OptionError, match="in_dims has 2 entries"):
        autobatch.vmap(double, in_dims=(0, 0))(torch.ones(3))
    with pytest.raises(OptionError, match="in_dims has dimension 2"):
        autobatch.vmap(double, in_dims=2)(torch.ones(3))
    with pytest.raises(OptionError, match="out_dims has dimension 1"):
        autobatch.vmap(double, out_dims=1)(torch.ones(3))


# Limits.


@pytest.mark.parametrize("executor", ["traced", "vmap"])
def test_max_steps_has_a_caret(executor):
    with pytest.raises(StepLimitError) as caught:
        autobatch.vmap(countdown, max_steps=7, executor=executor)(torch.arange(20))
    assert "max_steps=7" in str(caught.value)
    assert caught.value.span.file == __file__ and "^" in str(caught.value)


def test_max_steps_is_of_the_call_chunked_or_not():
    with autobatch.counts() as whole:
        autobatch.vmap(countdown, chunk_size=2)(torch.full((6,), 3))
    steps = whole.block_executions
    autobatch.vmap(countdown, chunk_size=2, max_steps=steps)(torch.full((6,), 3))
    with pytest.raises(StepLimitError):
        autobatch.vmap(countdown, chunk_size=2, max_steps=steps - 1)(torch.full((6,), 3))


def test_max_steps_of_the_sequential_engine_is_of_the_call():
    ns = torch.tensor([3, 0, 2])
    run = autobatch.function(countdown, engine="sequential")
    with autobatch.counts() as counted:
        run.batch(ns)
    steps = counted.block_executions
    assert run.with_options(max_steps=steps).batch(ns).tolist() == [0, 0, 0]
    with pytest.raises(StepLimitError, match=f"max_steps={steps - 1}"):
        run.with_options(max_steps=steps - 1).batch(ns)


def test_limits_read_the_same_on_both_engines():
    def said(error, func, **options):
        with pytest.raises(error) as caught:
            autobatch.vmap(func, **options)(torch.tensor([7]))
        return str(caught.value)

    for error, func, limit in (
        (StepLimitError, countdown, {"max_steps": 4}),
        (DepthLimitError, depth, {"max_depth": 5}),
    ):
        stackless, sequential = (said(error, func, engine=e, **limit) for e in BOTH_ENGINES)
        assert stackless == sequential and "^^^" in stackless
        assert "Hint: " in stackless and "raise max_" in stackless


@pytest.mark.parametrize("engine", [*BOTH_ENGINES, "program_counter"])
def test_max_depth(engine):
    ns = torch.tensor([3, 5])
    assert autobatch.vmap(depth, max_depth=6, engine=engine)(ns).tolist() == [3, 5]
    with pytest.raises(DepthLimitError, match="max_depth=5") as caught:
        autobatch.vmap(depth, max_depth=5, engine=engine)(ns)
    assert isinstance(caught.value, RecursionError)
    assert caught.value.span.file == __file__
    assert caught.value.span.line == depth.__code__.co_firstlineno + 1


# Fallbacks.


def marked(x):
    return on_host(x) + 1


@autobatch.per_thread
def on_host(x):
    return x.item() * 2


def ragged(xs, i):
    return torch.ones(i).sum() + xs


def reads(tree, i):
    if tree is None:
        return 0
    kids = tree.kids
    total = len(kids)
    for kid in kids:
        total += kid.size
    return total + kids[i].size


def tells(x):
    if x < 0:
        raise ValueError(f"{x.item()} is below zero")
    print("x is", f"{x.item():.1f}", str(x.item()))
    return x


def test_error_has_a_caret_and_hints():
    with pytest.raises(FallbackError) as caught:
        autobatch.vmap(ragged, fallback="error")(torch.ones(3), torch.arange(3))
    text = str(caught.value)
    assert "torch.ones(i)" in text and "^^^^^^^^^^^^^" in text
    assert "autobatch.per_thread" in text and "autobatch.primitive" in text
    assert caught.value.span.file == __file__


def test_warn_stands_at_the_line_once_per_place_and_call():
    def looped(n, x):
        for _ in range(3):
            x = x + math.comb(4, n)
        return x

    run = autobatch.vmap(looped, fallback="warn", chunk_size=2, scalars="python")
    for _ in range(2):
        with pytest.warns(FallbackWarning) as caught:
            run(torch.tensor([1, 2, 3, 3]), torch.zeros(4))
        assert len(caught) == 1
        line = looped.__code__.co_firstlineno + 2
        assert (caught[0].filename, caught[0].lineno) == (__file__, line)
        text = str(caught[0].message)
        assert (
            f"line {line}" in text
            and "`math.comb(4, n)` runs thread by thread: comb: " in text
            and __file__ in text
        )


def test_warnings_as_errors_refuse():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(FallbackError, match=r"torch.ones\(i\)"):
            autobatch.vmap(ragged, fallback="warn")(torch.ones(3), torch.arange(3))


def test_an_unknown_call_is_refused_before_it_runs():
    seen = Mock(side_effect=lambda x: x)

    def noted(x):
        return seen(x)

    assert autobatch.vmap(noted)(torch.ones(2)).tolist() == [1, 1]
    assert seen.call_count == 2
    with pytest.raises(FallbackError, match="any effect"):
        autobatch.vmap(noted, fallback="error")(torch.ones(2))
    assert seen.call_count == 2


@pytest.mark.parametrize("fallback", ["warn", "error"])
def test_what_a_program_means_is_no_fallback(fallback, capsys):
    node = SimpleNamespace
    trees = [
        node(kids=[node(size=n), node(size=2 * n), *[node(size=1)] * (n - 1)]) for n in (1, 2, 3)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options = {"fallback": fallback}
        result = autobatch.vmap(reads, **options)(autobatch.objects(trees), torch.tensor([0, 1, 0]))
        assert result.tolist() == [6, 14, 18]
        assert autobatch.vmap(marked, **options)(torch.arange(3.0)).tolist() == [1, 3, 5]
        autobatch.vmap(tells, **options)(torch.ones(2))
        assert capsys.readouterr().out == "x is 1.0 1.0\n" * 2
        with pytest.raises(ValueError, match=r"-3\.0 is below zero"):
            autobatch.vmap(tells, **options)(torch.tensor([-3.0]))


def test_no_fallback_where_none_is_needed():
    run = autobatch.vmap(countdown, fallback="error")
    assert run(torch.arange(4)).tolist() == [0, 0, 0, 0]
