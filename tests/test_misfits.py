"""Arguments and options that do not fit: each message is golden, and says what to write instead."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch

import autobatch
from autobatch.errors import OptionError
from autobatch.streams.stream import ARGUMENTS
from tests.goldens import assert_golden

XS = torch.arange(3.0)


def scaled(x, scale=1.0, *, shift=0.0):
    return x * scale + shift


def paired(x, y):
    return x + y


class Frame:
    """As a column of a table is: no array, but one can be made of it."""

    def __array__(self, dtype=None, copy=None):
        return np.arange(3.0)


def vmapped(*args, in_dims=0, **kwargs):
    return autobatch.vmap(scaled, in_dims=in_dims)(*args, **kwargs)


def batched(*args, **kwargs):
    return autobatch.function(scaled).batch(*args, **kwargs)


ARGUMENTS_OF_A_CALL: dict[str, Callable[[], object]] = {
    "no argument": lambda: batched(),
    "a number": lambda: batched(5),
    "a 0-d tensor": lambda: vmapped(torch.tensor(1.0)),
    "a 0-d tensor, by kind": lambda: batched(torch.tensor(1.0)),
    "a number of numpy's": lambda: batched(np.float32(1.0)),
    "a dimension too many": lambda: vmapped(XS, in_dims=1),
    "a vmap too many": lambda: autobatch.vmap(autobatch.vmap(scaled))(XS),
    "more entries than arguments": lambda: vmapped(XS, in_dims=(0, None)),
    "fewer entries than arguments": lambda: vmapped(XS, XS, XS, in_dims=(0, 0)),
    "batch sizes": lambda: vmapped(XS, torch.ones(4)),
    "tensors of two lengths": lambda: batched([torch.ones(2), torch.ones(3)]),
    "a list of strings": lambda: batched(["a", "b"]),
    "a list of strings, by in_dims": lambda: vmapped(["a", "b"]),
    "a list of numbers, by in_dims": lambda: vmapped([1, 2]),
    "a string": lambda: vmapped("abc"),
    "a generator": lambda: vmapped(x for x in range(3)),
    "a generator, by kind": lambda: batched(x for x in range(3)),
    "a range": lambda: batched(range(3)),
    "a column of a table": lambda: batched(Frame()),
    "objects of numpy's": lambda: batched(np.array([1, "a", None], dtype=object)),
    "strings of numpy's": lambda: vmapped(np.array(["a", "b"])),
    "dates of numpy's": lambda: vmapped(np.array(["2020-01-01"], dtype="datetime64[D]")),
    "objects of a number": lambda: autobatch.objects(5),  # type: ignore[arg-type]
    "ragged of a number": lambda: autobatch.ragged(5),
    "ragged of lists": lambda: autobatch.ragged([[1, 2], [3]]),
    "an input of a program": lambda: autobatch.execute(
        autobatch.lower(paired), XS, np.array(["a"], dtype=object)
    ),
}
CALLS: dict[str, Callable[[], object]] = {
    "a missing argument": lambda: autobatch.vmap(paired)(XS),
    "an argument too many": lambda: vmapped(XS, XS, XS),
    "a keyword that it has not": lambda: batched(XS, angle=1),
    "a misspelt keyword": lambda: batched(XS, shfit=1.0),
    "an option in a call": lambda: batched(XS, chunk_size=2),
    "an option in a call of vmap's": lambda: vmapped(XS, executor="vmap"),
}
OPTIONS: dict[str, Callable[[], object]] = {
    "vmap": lambda: autobatch.vmap(scaled, in_dim=0),
    "function": lambda: autobatch.function(exectuor="vmap"),
    "with_options": lambda: autobatch.function(scaled).with_options(chunksize=2),
    "stream": lambda: autobatch.stream(scaled, [1.0], witdh=3),
    "stream of a function": lambda: autobatch.function(scaled).stream([1.0], ordr="input"),
    "execute": lambda: autobatch.execute(autobatch.lower(paired), XS, XS, enginee="stackless"),
    "pfor": lambda: autobatch.pfor(lambda i: i, 3, falback="warn"),
    "grad": lambda: autobatch.grad(scaled, argnum=1),  # type: ignore[call-arg]
    "value_and_grad": lambda: autobatch.value_and_grad(scaled, aux=True),  # type: ignore[call-arg]
    "jacrev": lambda: autobatch.jacrev(scaled, chunksize=2),  # type: ignore[call-arg]
    "jvp": lambda: autobatch.jvp(scaled, (XS,), (XS,), hasaux=True),  # type: ignore[call-arg]
    "unlike all": lambda: autobatch.vmap(scaled, quickly=True),
    "a value": lambda: autobatch.vmap(scaled, engine="stack"),
    "arguments in the place of in_dims": lambda: autobatch.vmap(scaled, XS),
}
NO_FUNCTIONS: dict[str, Callable[[], object]] = {
    "vmap": lambda: autobatch.vmap(scaled(XS)),  # type: ignore[arg-type]
    "function": lambda: autobatch.function(3),  # type: ignore[call-overload]
    "a classmethod": lambda: autobatch.function(scalars="python")(classmethod(scaled)),
    "grad": lambda: autobatch.grad(3),  # type: ignore[arg-type]
    "per_thread": lambda: autobatch.per_thread(3),  # type: ignore[type-var]
    "lower": lambda: autobatch.lower(3),  # type: ignore[arg-type]
    "explain": lambda: autobatch.explain(3, XS),  # type: ignore[arg-type]
    "parse": lambda: autobatch.parse(scaled),  # type: ignore[arg-type]
}


def message(case: Callable[[], object]) -> str:
    with pytest.raises((OptionError, TypeError)) as caught:
        case()
    notes = [note for note in getattr(caught.value, "__notes__", ()) if "While running" not in note]
    own = str(caught.value).partition(". Did you mean")[0]  # which Python adds from 3.13 on
    told = "\n".join([f"{type(caught.value).__name__}: {own}", *notes])
    return told if "<function" not in told else told.partition("<function")[0]


@pytest.mark.parametrize(
    ("name", "cases"),
    [
        ("misfit_arguments", ARGUMENTS_OF_A_CALL),
        ("misfit_calls", CALLS),
        ("misfit_options", OPTIONS),
        ("misfit_functions", NO_FUNCTIONS),
    ],
)
def test_golden_messages(name: str, cases: dict[str, Callable[[], object]]) -> None:
    texts = [f"== {title}\n{message(case)}\n" for title, case in cases.items()]
    assert_golden(name, "\n".join(texts))


@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
@pytest.mark.parametrize("executor", ["traced", "vmap", "compiled"])
def test_every_engine_says_that_a_call_does_not_fit(engine: str, executor: str) -> None:
    run = autobatch.vmap(paired, engine=engine, executor=executor)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'") as caught:
        run(XS)
    assert caught.value.__notes__[-1].startswith("The arguments do not fit paired(x, y): ")


def test_explain_takes_the_arguments_of_the_function(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TypeError) as caught:
        autobatch.explain(scaled, XS, in_dims=0)
    assert "autobatch.vmap(scaled, in_dims=...)" in caught.value.__notes__[-1]
    with pytest.raises(autobatch.OptionError, match="batch sizes") as sized:
        autobatch.explain(scaled, XS, in_dims=(0,))  # which passes for a list of numbers
    assert "autobatch.vmap(scaled, in_dims=...)" in sized.value.__notes__[-1]


def inner(x, y):
    return paired(x)


def test_a_failure_within_a_program_is_no_misfit_of_its_call() -> None:
    with pytest.raises(TypeError) as caught:
        autobatch.vmap(inner)(XS, XS)
    assert not any("do not fit" in note for note in caught.value.__notes__)


def with_one(function):
    @functools.wraps(function)
    def wrapper(x):
        return function(x, 1)

    return wrapper


@with_one
def failing(x, y):
    if x > 0:
        raise TypeError("its own")
    return x + y


def test_an_error_below_a_decorator_that_gives_arguments_is_no_misfit() -> None:
    with pytest.raises(TypeError, match="its own") as caught:
        autobatch.vmap(failing)(XS)
    assert not any("do not fit" in note for note in caught.value.__notes__)


def test_the_arguments_of_streams_are_known_where_options_are_misspelt() -> None:
    for name in ARGUMENTS:
        with pytest.raises(OptionError, match=f"did you mean '{name}'"):
            autobatch.stream(scaled, [], **{f"{name}s": 1})
