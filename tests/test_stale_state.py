"""Nothing that a program reads from outside is baked into what has been recorded."""

from __future__ import annotations

import collections
import heapq
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autobatch
from autobatch.vm.purity import Known
from tests.oracle import CONFIGURATIONS

SCALE = 2.0
ROWS = torch.tensor([[1.0, -2.0], [3.0, 4.0], [-5.0, 6.0]])


def helper(x):
    return x * SCALE + 1


def by_helper(x):
    y = helper(x)
    while y.sum() < 3:
        y = helper(y).abs()
    return y


def by_global(x):
    return x * SCALE


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.scale = 3.0

    def scaled(self, x):
        return x * self.scale

    def forward(self, x):
        return self.scaled(self.linear(x)).sum()


def hot(func, rows=ROWS):
    mapped = autobatch.vmap(func, trace_after=0)
    for _ in range(4):
        result = mapped(rows)
    return mapped, result


def loop(func):
    return torch.stack([func(row.clone()) for row in ROWS])


@pytest.mark.parametrize("func", [by_helper, by_global])
def test_a_global_that_changes_is_seen(func, monkeypatch):
    mapped, before = hot(func)
    assert torch.equal(before, loop(func))
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    for _ in range(3):
        assert torch.equal(mapped(ROWS), loop(func))


def test_a_helper_that_is_replaced_is_seen(monkeypatch):
    mapped, _ = hot(by_helper)
    monkeypatch.setitem(globals(), "helper", lambda x: x * 7 + 1)
    assert torch.equal(mapped(ROWS), loop(by_helper))


def test_attributes_and_parameters_of_a_module_are_read_at_each_run():
    model = Scaled()
    mapped, before = hot(model)
    assert torch.allclose(before, loop(model))
    model.scale = -1.0
    assert torch.allclose(mapped(ROWS), loop(model))
    with torch.no_grad():
        model.linear.weight.mul_(2)
    assert torch.allclose(mapped(ROWS), loop(model))
    model.linear.weight = nn.Parameter(torch.eye(2))
    assert torch.allclose(mapped(ROWS), loop(model))
    model.linear = nn.Linear(2, 4)
    assert torch.allclose(mapped(ROWS), loop(model))


def test_captured_variables_are_read_at_each_run():
    factor = 2.0

    def func(x):
        return x * factor

    mapped, _ = hot(func)
    factor = 3.0
    assert torch.equal(mapped(ROWS), ROWS * 3.0)


def test_a_training_step_is_seen():
    model = Scaled()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mapped = autobatch.vmap(model, trace_after=0)
    for _ in range(4):
        optimizer.zero_grad()
        loss = mapped(ROWS).sum()
        expected = loop(model).sum()
        assert torch.allclose(loss, expected)
        wanted = torch.autograd.grad(expected, list(model.parameters()))
        loss.backward()
        for parameter, gradient in zip(model.parameters(), wanted, strict=True):
            assert torch.allclose(parameter.grad, gradient)
        optimizer.step()


def test_modes_are_part_of_the_signature():
    model = Scaled()
    mapped, result = hot(model)
    assert result.requires_grad
    with torch.no_grad():
        assert not mapped(ROWS).requires_grad
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert mapped(ROWS).dtype == torch.stack([model(row) for row in ROWS]).dtype
    assert mapped(ROWS.double().float()).requires_grad


SHAPE = [2, 1]


def test_a_shared_list_goes_by_its_content():
    def func(x):
        return x.reshape(SHAPE) * 2

    mapped, result = hot(func)
    assert result.shape == (3, 2, 1)
    SHAPE[:] = [1, 2]
    try:
        assert mapped(ROWS).shape == (3, 1, 2)
    finally:
        SHAPE[:] = [2, 1]


def test_defaults_of_a_helper_are_read_again():
    def scaled(x, by=2.0):
        return x * by

    def func(x):
        return scaled(x) + 1

    mapped, _ = hot(func)
    scaled.__defaults__ = (5.0,)
    assert torch.equal(mapped(ROWS), ROWS * 5 + 1)


def joined(text, between="-", end="."):
    return text + between + end


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_a_function_has_the_defaults_that_it_is_given(configuration, monkeypatch):
    def scaled(x, by=2.0, *, plus=0.0):
        return x * by + plus if x.sum() > 0 else -x

    def func(x):
        return scaled(x) + 1

    mapped = autobatch.vmap(func, **configuration)
    texts = autobatch.vmap(lambda text: joined(text, "+") + joined(text), **configuration)
    for defaults, named in (((5.0,), {"plus": 1.0}), ((ROWS[0], 7.0), {}), (None, None)):
        scaled.__defaults__, scaled.__kwdefaults__ = defaults, named
        monkeypatch.setattr(joined, "__defaults__", defaults and ("!",) * len(defaults))
        if defaults and named:
            assert torch.equal(mapped(ROWS), loop(func))
            with pytest.raises(TypeError, match=r"joined\(\) missing 1 required"):
                texts(autobatch.objects(["a", "b"]))
        else:
            with pytest.raises(TypeError, match=r"scaled\(\) missing \d required"):
                mapped(ROWS)
    monkeypatch.setattr(joined, "__defaults__", ("a", "b", "c"))
    assert autobatch.vmap(joined, **configuration)(autobatch.objects(["x"])) == ["xbc"]
    scaled.__defaults__, scaled.__kwdefaults__ = (ROWS[1], 3.0), {"plus": 0.5}
    bare = autobatch.vmap(lambda x: scaled() + x, **configuration)
    assert torch.equal(bare(ROWS), loop(lambda x: scaled() + x))


def test_class_attributes_of_what_the_program_makes_are_read_again():
    mapped, _ = hot(by_counter)
    Counter.by = 7.0
    try:
        assert torch.equal(mapped(ROWS), ROWS * 7)
    finally:
        Counter.by = 2.0


class Counter:
    by = 2.0

    def __init__(self, x):
        self.x = x

    def value(self):
        return self.x * self.by


def by_counter(x):
    return Counter(x).value()


def test_hooks_are_seen():
    layer = nn.Linear(2, 2)

    def func(x):
        return layer(x) + 1

    mapped, _ = hot(func)
    for factor in (2.0, 3.0):
        handle = layer.register_forward_hook(lambda m, i, o, f=factor: o * f)
        assert torch.allclose(mapped(ROWS), loop(func))
        handle.remove()
    assert torch.allclose(mapped(ROWS), loop(func))


@pytest.mark.parametrize("executor", ["vmap", "traced", "compiled"])
def test_hooks_of_all_modules_are_seen(executor):
    layer = nn.Sequential(nn.Linear(2, 2), nn.Tanh())

    def func(x):
        return layer(x) + layer[0](x) if x.sum() > 0 else x

    mapped = autobatch.vmap(func, executor=executor, trace_after=0)
    of_all = nn.modules.module
    for _ in range(3):
        assert torch.allclose(mapped(ROWS), loop(func))
    for register, hook in (
        (of_all.register_module_forward_hook, lambda m, i, o: o * 3),
        (of_all.register_module_forward_pre_hook, lambda m, i: (i[0] * 2,)),
    ):
        handle = register(hook)
        try:
            for _ in range(3):
                assert torch.allclose(mapped(ROWS), loop(func))
        finally:
            handle.remove()
        assert torch.allclose(mapped(ROWS), loop(func))


def by_itself(module, x):
    return x * module.scale - 1 if x.sum() > 0 else x


class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.scale = 3.0

    def forward(self, x):
        return self.linear(x) * self.scale if x.sum() > 0 else x


FORWARDS: dict[str, Any] = {
    "method": lambda module: MethodType(by_itself, module),
    "partial": lambda module: partial(by_itself, module),
    "closure": lambda module: lambda x: module.scale + x if x[0] > 0 else -x,
    "torch": lambda module: torch.sin,
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_a_forward_of_a_modules_own_is_seen(configuration):
    module = Shifted()
    chain = nn.Sequential(module, nn.Tanh())

    def func(x):
        return module(chain(x))

    def given(x):
        return torch.func.functional_call(module, {"linear.bias": x}, (x,))

    programs = [(f, autobatch.vmap(f, **configuration)) for f in (func, module, chain, given)]
    for changed in (module, chain):
        for made in (None, *FORWARDS.values()):
            if made is not None:
                changed.scale = 3.0
                changed.forward = made(changed)
            for program, mapped in programs:
                assert torch.allclose(mapped(ROWS), loop(program))
        del changed.forward
    for program, mapped in programs:
        assert torch.allclose(mapped(ROWS), loop(program))


NESTED = [[3], [1]]


@pytest.mark.parametrize("write", ["unpacked", "smallest", "heap"])
def test_writes_to_shared_lists_are_refused_wherever_they_are_found(write):
    def unpacked(x):
        first, _ = NESTED
        first.append(1)
        return x

    def smallest(x):
        min(NESTED).append(1)
        return x

    def heap(x):
        heapq.heappush(NESTED[0], 1)
        return x

    with pytest.raises(autobatch.SharedWriteError):
        autobatch.vmap({"unpacked": unpacked, "smallest": smallest, "heap": heap}[write])(ROWS)
    assert NESTED == [[3], [1]]


def second_name_of_a_shared_start(x):
    total = torch.zeros(())
    total += 0
    first = total
    total += 1
    return first * x[0]


def second_name_in_a_tuple(x):
    total = torch.zeros(2)
    first, y = total, x * 2
    total += y
    return first


@pytest.mark.parametrize(
    "func", [second_name_of_a_shared_start, second_name_in_a_tuple], ids=lambda f: f.__name__
)
def test_what_runs_often_keeps_second_names(func):
    """A plan that has run twice is printed as straight Python."""
    batched = autobatch.vmap(func, trace_after=0)
    expected = torch.stack([func(row) for row in ROWS])
    for _ in range(4):
        torch.testing.assert_close(batched(ROWS), expected)


class Quadratic(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor([1.0, 2.0]))

    def forward(self, x):
        return (self.scale * x * x).sum()


QUADRATIC = Quadratic()


def gradient_of_a_module(x):
    return torch.func.grad(QUADRATIC)(x)


def test_recordings_ask_no_fake_tensor_for_its_memory():
    """Torch warns of that, once in a process."""
    code = (
        "import torch, autobatch, tests.test_stale_state as t\n"
        "print(autobatch.vmap(t.gradient_of_a_module, trace_after=0)(torch.ones(3, 2)).shape)"
    )
    found = subprocess.run(
        [sys.executable, "-W", "always", "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    assert found.stdout == "torch.Size([3, 2])\n"
    assert "FakeTensor" not in found.stderr


def untaught(x: Tensor, n: Tensor) -> Tensor:
    y, steps = x, 0
    with torch.no_grad():
        while steps < n:
            y = y * 2
            steps += 1
    return y * x


def unseen(x: Tensor, n: Tensor) -> Tensor:
    with torch.inference_mode():
        steps = 1 if n > 1 else 2
    return x * x * steps


def looped(x: Tensor, n: Tensor) -> Tensor:
    steps = 0
    while steps < n:
        steps += 1
    return x


def through_a_call(x: Tensor, n: Tensor) -> Tensor:
    with torch.no_grad():
        y = looped(x, n)
    return y * x


def from_a_list(x: Tensor, n: Tensor) -> Tensor:
    both = [x]
    with torch.no_grad():
        if n > 1:
            both.append(x * 2)
        y = both[n > 2]
    return y + 0 * n + x


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", [untaught, unseen, through_a_call, from_a_list])
@pytest.mark.parametrize("executor", ["vmap", "traced"])
@pytest.mark.parametrize("engine", ["stackless", "program_counter"])
def test_parting_within_a_mode_keeps_gradients(program: Any, executor: str, engine: str) -> None:
    x, n = torch.rand(4, requires_grad=True), torch.arange(4)
    batched = autobatch.vmap(program, engine=engine, executor=executor, trace_after=0)
    want = torch.stack([program(a, b) for a, b in zip(x, n, strict=True)])
    (slope,) = torch.autograd.grad(want.sum(), x)
    for _ in range(3):
        (got,) = torch.autograd.grad(batched(x, n).sum(), x)
        torch.testing.assert_close(got, slope)
        with torch.no_grad():
            assert not batched(x, n).requires_grad


@pytest.mark.parametrize("first", [-1.0, -2.0, 0.5, 1.0])
def test_a_number_is_read_at_each_call(first: float) -> None:
    """Whatever number it was recorded with; once -1.0 was kept as a constant."""

    def shifted(y, unused, n):
        n = n * 1.0
        y += n
        return y * unused

    mapped = autobatch.vmap(shifted, in_dims=(0, None, None), trace_after=0)
    for unused in (1.0, first):
        for n in (first, 5.0, 0.0):
            got = mapped(torch.zeros(3, 2), unused, n)
            assert got.tolist() == (torch.zeros(3, 2) + n).mul(unused).tolist()


def first(n: int) -> int:
    return n + second(n - 1) + third(n - 2) + second(n - 3) if n > 0 else SCALE


def second(n: int) -> int:
    return n + third(n - 1) + first(n - 2) + third(n - 3) if n > 0 else SCALE


def third(n: int) -> int:
    return n + first(n - 1) + second(n - 2) + first(n - 3) if n > 0 else SCALE


def test_what_functions_that_call_one_another_rest_on_is_looked_up_once(monkeypatch: Any) -> None:
    """On how many ways a name is come to does not matter: those are many where calls go round."""
    batched = autobatch.vmap(first, scalars="python")
    ns = torch.arange(5)
    for _ in range(2):
        assert batched(ns).tolist() == [first(n) for n in range(5)]
    looked: collections.Counter[tuple[str, str]] = collections.Counter()
    looked_up = Known.looked_up

    def counted(self: Known, name: str) -> object:
        looked[self.function.name, name] += 1
        return looked_up(self, name)

    monkeypatch.setattr(Known, "looked_up", counted)
    batched(ns)
    assert {function for function, _ in looked} == {"first", "second", "third"}
    judged = 3
    assert max(looked.values()) <= 2 * judged


def scaled_by_objects(x, n):
    y = x[0]
    for part in x:
        y = part * n
    return y


@pytest.mark.parametrize("on_error", ["raise", "isolate"])
def test_what_threads_have_one_object_of_each_is_not_in_a_recording(on_error: Any) -> None:
    mapped = autobatch.vmap(scaled_by_objects, trace_after=0, on_error=on_error)
    for numbers in ([3], [4], [3, 4]):
        found = mapped(torch.ones(len(numbers), 5), autobatch.objects(numbers))
        found = [each.value for each in found] if on_error == "isolate" else found
        assert list(map(float, found)) == numbers
