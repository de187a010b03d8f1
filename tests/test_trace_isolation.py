"""A trace comes from outside of every mode and level that is on where it is recorded."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from autobatch.batching.trace import Input, Trace, record


def stretch(k: int, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    def one(x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.tanh(w @ x) * 2.0 + torch.zeros(4) + torch.tensor(1.0)
        return y, y.sum() + x[0]

    out: tuple[Tensor, ...] = torch.vmap(one)(x)
    return out


def traced(x: Tensor, w: Tensor, fn: Callable[..., Any] = stretch) -> Trace:
    return record(fn, [Input("column", x), Input("tensor", w)])


@pytest.fixture
def values() -> tuple[Tensor, Tensor]:
    return torch.randn(3, 4), torch.randn(4, 4)


def assert_usable(trace: Trace, x: Tensor, w: Tensor) -> None:
    """The trace gives real tensors with the function's values."""
    got = trace(3, x, w)
    assert not any(isinstance(out, FakeTensor) for out in got)
    torch.testing.assert_close(got, stretch(3, x, w))


def test_inside_func_grad(values: tuple[Tensor, Tensor]) -> None:
    x, w = values
    made: list[Trace] = []

    def loss(x: Tensor, w: Tensor) -> Tensor:
        made.append(traced(x, w))
        return made[0](3, x, w)[0].sum()

    got = torch.func.grad(loss, (0, 1))(x, w)
    want = torch.func.grad(lambda x, w: stretch(3, x, w)[0].sum(), (0, 1))(x, w)
    torch.testing.assert_close(got, want)
    assert_usable(made[0], x, w)


def test_inside_vmap(values: tuple[Tensor, Tensor]) -> None:
    x, w = values
    made: list[Trace] = []

    def outer(scale: Tensor) -> Tensor:
        made.append(traced(x * scale, w))
        return made[0](3, x * scale, w)[0]

    scales = torch.tensor([1.0, 2.0])
    got = torch.vmap(outer)(scales)
    torch.testing.assert_close(got[1], stretch(3, 2 * x, w)[0])
    assert_usable(made[0], x, w)


def test_inside_jvp(values: tuple[Tensor, Tensor]) -> None:
    x, w = values
    _, got = torch.func.jvp(lambda x: traced(x, w)(3, x, w)[0], (x,), (x,))
    _, want = torch.func.jvp(lambda x: stretch(3, x, w)[0], (x,), (x,))
    torch.testing.assert_close(got, want)


def test_inside_another_fake_mode(values: tuple[Tensor, Tensor]) -> None:
    x, w = values
    with FakeTensorMode() as mode:
        trace = traced(mode.from_tensor(x), mode.from_tensor(w))
    assert_usable(trace, x, w)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inside_grad_modes(values: tuple[Tensor, Tensor], mode: Callable[[], Any]) -> None:
    x, w = values
    with mode():
        trace = traced(x, w)
        assert_usable(trace, x, w)
    w.requires_grad_()
    assert trace(3, x, w)[0].requires_grad


def test_autocast_is_part_of_the_trace(values: tuple[Tensor, Tensor]) -> None:
    x, w = values
    with torch.autocast("cpu", torch.bfloat16):
        trace = traced(x, w)
        want = stretch(3, x, w)
        got = trace(3, x, w)
    assert [a.dtype for a in got] == [a.dtype for a in want]
    torch.testing.assert_close(got, want, rtol=0.02, atol=0.02)
    torch.testing.assert_close(trace(3, x, w), got)


def test_inside_a_device_context(values: tuple[Tensor, Tensor]) -> None:
    x, w = values

    def fn(k: int, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return (x @ w + torch.zeros(4, device="cpu"),)

    with torch.device("meta"):
        trace = traced(x, w, fn)
        assert trace(3, x, w)[0].device.type == "cpu"
    torch.testing.assert_close(trace(3, x, w), fn(3, x, w))


@pytest.mark.gpu
def test_the_default_device_is_part_of_the_trace() -> None:
    def fn(k: int, x: Tensor) -> tuple[Tensor, ...]:
        return (torch.zeros(3) + x, torch.tensor(1.0))

    x = torch.randn(2, 3, device="cuda")
    with torch.device("cuda"):
        trace = record(fn, [Input("column", x)])
    assert [out.device.type for out in trace(2, x)] == ["cuda", "cuda"]


def test_the_default_dtype_is_part_of_the_trace() -> None:
    def fn(k: int, x: Tensor) -> tuple[Tensor, ...]:
        return (torch.zeros(2, 3) + x.sum(), x / 2)

    x = torch.arange(3)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        trace = record(fn, [Input("column", x)])
        assert [out.dtype for out in trace(3, x)] == [torch.float64, torch.float64]
    finally:
        torch.set_default_dtype(before)


def test_recording_changes_no_state(values: tuple[Tensor, Tensor]) -> None:
    x, w = values
    w.requires_grad_()
    before = (x._version, w._version, torch.get_rng_state().sum())
    traced(x, w)
    assert before == (x._version, w._version, torch.get_rng_state().sum())
    assert w.grad is None and torch.is_grad_enabled()
    assert torch.nn.Linear(4, 4)(x).shape == (3, 4)


def test_host_threads_record_and_replay_at_once(values: tuple[Tensor, Tensor]) -> None:
    x, w = values
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for turn in range(3):
                scale = float(seed + turn)
                trace = traced(x, w, lambda k, x, w, s=scale: (stretch(k, x, w)[0] * s,))
                torch.testing.assert_close(trace(3, x, w)[0], stretch(3, x, w)[0] * scale)
        except BaseException as failure:
            failures.append(failure)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


@pytest.mark.slow
def test_recordings_of_host_threads_that_have_ended_leave_nothing_behind():
    """torch 2.11, built for CUDA, ends the process at the second one where nothing is done."""
    code = (
        "import threading, torch\n"
        "from tests.test_trace_isolation import traced, assert_usable\n"
        "for size in range(4):\n"
        "    values = torch.ones(3, 4), torch.ones(4, 4) * size\n"
        "    asked = threading.Thread(target=lambda: assert_usable(traced(*values), *values))\n"
        "    asked.start()\n"
        "    asked.join()\n"
        "    others = [torch.empty(each) for each in range(200)]\n"
        "print('done')"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    assert (found.returncode, found.stdout) == (0, "done\n"), found.stderr
