"""The short way through a warm call of a function of one block: no engine, the same meaning."""

from __future__ import annotations

import collections
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autobatch
from autobatch.runs import chunks, machines, shortcuts
from tests.expected import check, stacked


def engines_made(monkeypatch: pytest.MonkeyPatch, call: Callable[[], Any]) -> int:
    """How many engines a call makes."""
    made = []
    original = machines.machine_of

    def counted(*args: Any) -> Any:
        made.append(args)
        return original(*args)

    with monkeypatch.context() as patched:
        patched.setattr(chunks, "machine_of", counted)
        patched.setattr(shortcuts, "machine_of", counted)
        call()
    return len(made)


def warm(mapped: Callable[..., Any], *args: Any) -> None:
    for _ in range(5):
        mapped(*args)


SCALE = 2.0


def scaled(x: Tensor) -> Tensor:
    return (x * SCALE + 1).sin()


XS = torch.linspace(-1.0, 2.0, 12).reshape(4, 3)


def test_a_warm_call_makes_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = autobatch.vmap(scaled, trace_after=0)
    warm(mapped, XS)
    assert engines_made(monkeypatch, lambda: mapped(XS)) == 0
    assert engines_made(monkeypatch, lambda: mapped(XS[:3])) == 0
    assert engines_made(monkeypatch, lambda: mapped(XS.double())) == 1
    torch.testing.assert_close(mapped(XS), scaled(XS))


def test_a_module_of_torchs_makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    hooked = nn.Linear(3, 5)  # its calls are of a program, and lowered as such: not all modules'
    hooked.register_forward_hook(lambda module, args, out: out + 1)
    torch.testing.assert_close(autobatch.vmap(hooked)(XS), hooked(XS))
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Dropout(0.5)).eval()
    mapped = autobatch.vmap(model, trace_after=0)
    warm(mapped, XS)
    assert engines_made(monkeypatch, lambda: mapped(XS)) == 0
    torch.testing.assert_close(mapped(XS), model(XS))
    with torch.no_grad():
        model[0].weight.mul_(2)
    torch.testing.assert_close(mapped(XS), model(XS))
    model[0].weight = nn.Parameter(torch.ones(5, 3))
    torch.testing.assert_close(mapped(XS), model(XS))
    model.train()
    with pytest.raises(Exception, match="random"):
        mapped(XS)
    model.eval()
    model[0].register_forward_hook(lambda module, args, out: out + 1)
    torch.testing.assert_close(mapped(XS), model(XS))


def test_an_empty_function_makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = autobatch.vmap(lambda x: x, trace_after=0)
    warm(mapped, XS)
    assert engines_made(monkeypatch, lambda: mapped(XS)) == 0
    assert torch.equal(mapped(XS), XS)


def test_counts_are_those_of_the_general_way() -> None:
    mapped = autobatch.vmap(scaled, trace_after=0)
    warm(mapped, XS)
    with autobatch.counts() as short:
        mapped(XS)
    with autobatch.counts() as general:
        autobatch.vmap(scaled, max_steps=10)(XS)
    assert (short.block_executions, short.launches, short.traces) == (1, 3, 0)
    assert short == general


def test_what_nobody_looked_at_is_looked_at_when_asked() -> None:
    mapped, steps = autobatch.vmap(scaled, trace_after=0), []
    warm(mapped, XS)
    autobatch.vmap(scaled, listeners=steps.append)(XS)
    assert [len(step.threads) for step in steps] == [4]
    results = autobatch.vmap(scaled, on_error="isolate")(XS)
    torch.testing.assert_close(results[1].value, scaled(XS[1]))


def test_state_from_outside_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    factor = 3.0

    def program(x: Tensor, by: float = 1.0) -> Tensor:
        return x * SCALE * factor * by

    mapped = autobatch.vmap(program, trace_after=0)
    warm(mapped, XS)
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    torch.testing.assert_close(mapped(XS), program(XS))
    factor = 4.0
    torch.testing.assert_close(mapped(XS), program(XS))
    program.__defaults__ = (7.0,)
    torch.testing.assert_close(mapped(XS), program(XS))
    program.__code__ = (lambda x, by=1.0: x - factor).__code__.replace(
        co_freevars=program.__code__.co_freevars
    )
    torch.testing.assert_close(mapped(XS), XS - 4.0)


def test_modes_are_seen() -> None:
    mapped, xs = autobatch.vmap(scaled, trace_after=0), XS.clone().requires_grad_()
    warm(mapped, xs)
    assert mapped(xs).requires_grad
    with torch.no_grad():
        warm(mapped, xs)
        assert not mapped(xs).requires_grad
    (found,) = torch.autograd.grad(mapped(xs).sum(), xs)
    (expected,) = torch.autograd.grad(scaled(xs).sum(), xs)
    torch.testing.assert_close(found, expected)
    slope = torch.func.grad(lambda x: mapped(x).sum())(XS)
    torch.testing.assert_close(slope, expected)
    with torch.autocast("cpu", torch.bfloat16):
        model = nn.Linear(3, 2)
        assert autobatch.vmap(model)(XS).dtype is torch.bfloat16
    assert autobatch.vmap(model)(XS).dtype is torch.float32


Pair = collections.namedtuple("Pair", "low high")


@pytest.mark.parametrize(
    "program",
    [
        lambda x: (x.sum(), {"a": x, "b": [x * 2, 3]}),
        lambda x: Pair(x - 1, x + 1),
        lambda x: 7,
        lambda x: "text",
        lambda x: [x, "text"],
        lambda x: None,
        lambda x: len(x) + 1.5,
    ],
)
def test_results_of_all_kinds(program: Callable[[Tensor], Any]) -> None:
    mapped = autobatch.vmap(program, trace_after=0)
    expected = stacked([program(x) for x in XS])
    for _ in range(5):
        check(mapped(XS), expected)


def test_dimensions_out() -> None:
    mapped = autobatch.vmap(
        lambda x, y: (x * y, y), in_dims=(1, None), out_dims=(1, None), trace_after=0
    )
    y = torch.arange(4.0)
    for _ in range(5):
        product, same = mapped(XS, y)
        torch.testing.assert_close(product, XS * y[:, None])
        assert same is y


def test_errors_are_those_of_python() -> None:
    def divided(x: Tensor, index: int) -> Tensor:
        return x[index] * 2

    mapped = autobatch.vmap(divided, in_dims=(0, None), trace_after=0)
    warm(mapped, XS, 1)
    with pytest.raises(IndexError):
        mapped(XS, 3)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'index'"):
        autobatch.vmap(divided)(XS)
    with pytest.raises(autobatch.OptionError, match="batch sizes"):
        autobatch.vmap(divided)(XS, XS[:2])
    with pytest.raises(autobatch.OptionError, match="in_dims has dimension 2"):
        autobatch.vmap(divided, in_dims=(2, None))(XS, 1)


def item_of(x: Tensor, i: Any) -> Tensor:
    return x[i]


def item_by_two(x: Tensor, i: Any) -> Tensor:
    return item_of(x, i) + 1


def items(x: Tensor, i: Any) -> Tensor:
    while i < 9:
        y = item_by_two(x, i)
        i = i + 1
    return y


@pytest.mark.parametrize("fork", ["auto", "off"])
@pytest.mark.parametrize("executor", ["traced", "vmap"])
def test_a_failure_seen_later_names_its_calls(executor: str, fork: str) -> None:
    """The index is looked at with the branch of the loop; the note tells of the calls."""
    batched = autobatch.vmap(items, trace_after=0, executor=executor, fork=fork)
    for _ in range(3):
        with pytest.raises(IndexError) as caught:
            batched(torch.randn(3, 5), torch.tensor([8, 2, 4]))
        (note,) = caught.value.__notes__
        lines = [line.partition("|")[2] for line in note.splitlines()]
        marked = [
            text[below.index("^") : below.rindex("^") + 1]
            for text, below in pairwise(lines)
            if "^" in below
        ]
        assert marked == ["item_by_two(x, i)", "item_of(x, i)", "x[i]"]
