"""Arrays and tensors of one memory, and partial calls of methods: writes are seen, or refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim.lbfgs import _strong_wolfe

import autobatch
from tests.oracle import CONFIGURATIONS, assert_matches_loop
from tests.outside_world import program

XS = torch.tensor([0.0, 1.0, 3.0])
OUTSIDE = torch.zeros(2)
RIGHT = (
    "T = torch.zeros(3);;T.numpy()[0] = x;;return T",
    "T = torch.zeros(3);;n = T.numpy();;n[0] = x;;T[1] = 2;;return T, float(n[1])",
    "T = torch.zeros(3) + x;;n = T.numpy();;n[0] = 5;;return T",
    "T = torch.zeros(3);;n = T.numpy();;T[0] = x;;return float(n[0]) + 0 * x",
    "T = torch.zeros(3);;A = np.asarray(T);;A[0] = 1;;return T + x",
    "T = torch.zeros(3) + x;;A = T.detach().numpy();;A += 1;;return T",
    "T = torch.zeros(3) + x;;U = torch.Tensor(T);;U += 1;;return T, U",
    "T = torch.zeros(3) + x;;U = torch.Tensor(T)[1:];;U *= x;;T += 1;;return T, U",
    "T = torch.zeros(3) + x;;return float(T.numpy().sum()) + T",
    "T = torch.zeros(3) + x;;a = T.numpy();;b = T.numpy();;a[0] = 5;;b[1] = 7;;return T",
    "T = torch.zeros(3) + x;;np.add(T.numpy(), 1, out=T.numpy());;return T",
    "T = torch.zeros(3);;T.numpy().fill(3);;T.numpy()[1:] = x;;np.put(T.numpy(), 0, 9);;return T",
    "T = torch.zeros(3) + x;;torch._foreach_add_([T, x], 1);;return T, x",
    "T = torch.ones(3);;torch._foreach_mul_((T, T[1:]), [2.0, x.item()]);;return T",
    "T = torch.ones(3) + x;;L = [T, x];;torch._foreach_zero_(L[:1]);;return L, T",
    "T = torch.ones(3);;U = T[:2];;torch._foreach_copy_([U], [x.expand(2)]);;return T",
    "A = np.zeros(3);;t = torch.tensor(A);;t[0] = 7;;return float(A[0]) + x, t",
    "A = np.zeros(3);;t = torch.from_numpy(A).clone();;t[0] = 7;;return float(A[0]) + x, t",
    "t = torch.from_numpy(np.zeros(3));;t[0] = x;;return t",
    "t = torch.frombuffer(bytearray(b'abcd'), dtype=torch.uint8);;t[0] = 1;;return t + x",
    "X = [1];;partial(list.append, X)(1);;return X",
    "X = [1];;partial(X.append, 1)();;return X",
    "X = [1];;p = partial(X.append, x);;p();;p();;return X",
    "X = [1];;p = partial(X.insert, 0);;p(len(X));;return X",
)
REFUSED = (
    "A = np.zeros(3);;t = torch.from_numpy(A);;t[0] = 1;;return float(A[0]) + x",
    "A = np.zeros(3) + float(x);;t = torch.from_numpy(A);;t[0] = 1;;return float(A[0])",
    "A = np.zeros(3);;t = torch.as_tensor(A);;t[0] = x;;return float(A[0]) + x",
    "A = np.zeros(3);;t = torch.asarray(A);;t[0] = x;;return float(A[0]) + x",
    "A = np.zeros(3);;t = torch.from_numpy(A);;A[0] = 7;;return t[0] + x",
    "A = np.zeros(3);;t = torch.from_numpy(A);;A += 7;;return t[0] + x",
    "A = np.zeros(3);;t = torch.from_numpy(A);;A.fill(7);;return t[0] + x",
    "A = np.zeros(3);;t = torch.from_numpy(A)[1:];;t += 1;;return float(A[1]) + x",
    "b = bytearray(b'a');;t = torch.frombuffer(b, dtype=torch.uint8);;t[0] = 1;;return b[0] + x",
    "T = torch.zeros(3) + x;;U = torch.from_dlpack(T);;U[0] = 1;;return T",
)


def made(source: str) -> Callable[..., Any]:
    names = {"torch": torch, "np": np, "partial": functools.partial}
    names |= {"OUTSIDE": OUTSIDE, "OUTSIDES": [OUTSIDE]}
    return program(f"memory {source}", source.split(";;"), names)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("source", RIGHT)
def test_writes_are_seen(source: str) -> None:
    assert_matches_loop(made(source), [XS])


@pytest.mark.parametrize("source", REFUSED)
def test_writes_are_refused(source: str) -> None:
    func = made(source)
    for configuration in CONFIGURATIONS:
        if configuration.get("engine") == "sequential":
            continue
        with pytest.raises(autobatch.UnsupportedError, match=r"another of its names[\s\S]*\^"):
            autobatch.vmap(func, **configuration)(XS)


@pytest.mark.parametrize("tensors", ["[x, OUTSIDE]", "OUTSIDES"])
def test_several_tensors_from_before_the_call_are_not_written(tensors: str) -> None:
    func = made(f"torch._foreach_add_({tensors}, 1);;return x")
    for configuration in CONFIGURATIONS:
        with pytest.raises(autobatch.SharedWriteError, match="existed before the call"):
            autobatch.vmap(func, **configuration)(XS)
    assert OUTSIDE.tolist() == [0, 0]


class Lending:
    """An object that hands out arrays and tensors of its memory."""

    def __init__(self) -> None:
        self.array = np.zeros(3)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.array.copy() if copy else self.array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


LENDING, LENT = Lending(), memoryview(bytearray(24))
NAMES = {"torch": torch, "np": np, "LENDING": LENDING, "LENT": LENT}
OF_LENT_MEMORY = (
    "a = np.asarray(LENDING);;a += x.item();;return float(a.sum()) + x",
    "t = torch.as_tensor(np.asarray(LENDING));;t[0] = x;;return t",
    "t = torch.from_dlpack(LENDING);;t[0] = x;;return t",
    "a = np.from_dlpack(LENDING);;t = torch.as_tensor(a);;t += x;;return t",
    "t = torch.frombuffer(LENT, dtype=torch.float64);;t[0] = x;;return t",
    "a = np.frombuffer(LENT, dtype=np.float64);;a += x.item();;return x",
    "a = np.frombuffer(LENT, dtype=np.float64, offset=8);;a[0] = x.item();;return x",
    "a = np.asarray(LENT);;a[0] = 1;;return x",
)


@pytest.mark.parametrize("source", OF_LENT_MEMORY)
def test_memory_that_an_object_lends_is_not_written(source: str) -> None:
    func = program(f"lent {source}", source.split(";;"), NAMES)
    for configuration in CONFIGURATIONS:
        if configuration.get("engine") == "sequential":
            continue
        with pytest.raises(autobatch.SharedWriteError, match="existed before the call"):
            autobatch.vmap(func, **configuration)(XS)
    assert not LENDING.array.any() and not any(LENT)


def test_a_copy_of_lent_memory_is_each_examples_own() -> None:
    source = "a = np.array(LENDING);;a += x.item();;return float(a.sum()) + x"
    assert_matches_loop(program("copied", source.split(";;"), NAMES), [XS])


# Torch functions that are given a function of the program's and may give back an operand.


def searched(x, d):
    def objective(x, t, d):
        y = x + t * d
        return (y * y).sum(), 2 * y

    first = x.abs().sum() / 9
    value, slope, step, _ = _strong_wolfe(
        objective, x, first, d, (x * x).sum(), 2 * x, (2 * x).dot(d)
    )
    return value, slope, step, first


def searched_and_written(x, d):
    value, slope, step, first = searched(x, d)
    step += 1
    return value, slope, step, first


@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
def test_a_function_that_is_given_a_closure_gives_back_an_operand(engine):
    xs = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    expected = [searched(x, -2 * x) for x in xs]
    assert any(row[2] is row[3] for row in expected)
    got = autobatch.vmap(searched, engine=engine)(xs, -2 * xs)
    for mine, theirs in zip(got, zip(*expected, strict=True), strict=True):
        torch.testing.assert_close(mine, torch.stack(theirs))


@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
def test_what_it_gives_back_may_be_written(engine):
    """It runs thread by thread, so that which operand it gives back is known for each."""
    xs = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    expected = [searched_and_written(x.clone(), -2 * x) for x in xs]
    for plain in ("auto", "never"):
        got = autobatch.vmap(searched_and_written, engine=engine, plain=plain)(xs, -2 * xs)
        for mine, theirs in zip(got, zip(*expected, strict=True), strict=True):
            torch.testing.assert_close(mine, torch.stack(theirs))


def test_tensors_do_not_exchange_what_they_are() -> None:
    linear = torch.nn.Linear(1, 1)

    def func(x):
        torch.utils.swap_tensors(linear.weight, torch.nn.Parameter(x.reshape(1, 1)))
        return linear(x[None])

    with pytest.raises(autobatch.UnsupportedError, match=r"swap_tensors[\s\S]*\^"):
        autobatch.vmap(func)(XS)


def test_each_example_has_a_future_of_its_own() -> None:
    def func(x):
        future = torch.futures.Future()
        if x > 2:
            future.set_result(3)
        return torch.tensor(future.done())

    assert_matches_loop(func, [XS])
