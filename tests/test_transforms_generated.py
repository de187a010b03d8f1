"""Gradients of generated programs and of ``programs/``: the plain loop's, and numerically right.

Each generated program is drawn with its rows; its loss is the sum of the floating-point tensors
that it returns. ``torch.autograd`` on one example after the other is the oracle, for ``backward``
through a batched call and for the batched gradient.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, note
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

import autobatch
from programs.example import Example
from tests.generator import GeneratedProgram, programs
from tests.test_properties import LONG, QUICK

ENGINES: list[dict[str, Any]] = [
    {"trace_after": 0},
    {"engine": "program_counter", "trace_after": 0},
    {"executor": "vmap", "fork": "off"},
]
FLOATS = ("f0", "d0", "f3", "d3")


def total(part: Any) -> Any:
    """The sum of the floating-point tensors in a result, in float64."""
    found = torch.zeros((), dtype=torch.float64)
    if isinstance(part, tuple):
        for inner in part:
            found = found + total(inner)
    elif isinstance(part, Tensor) and part.is_floating_point():
        found = found + part.double().sum()
    return found


def loss_of(program: Callable[..., Any]) -> Callable[..., Any]:
    def loss(*args: Any) -> Any:
        copies = [arg * 1.0 if isinstance(arg, Tensor) else arg for arg in args]
        return total(program(*copies))

    return loss


def alone(loss: Callable[..., Any], row: tuple[Any, ...], places: tuple[int, ...]) -> list[Tensor]:
    """The gradient of one example, by plain autograd.

    It refuses where a program writes to what it has kept for the backward; a batch has no such
    tensors. So it keeps copies.
    """
    leaves = [row[place].requires_grad_() for place in places]
    with saved_tensors_hooks(Tensor.clone, lambda kept: kept):
        value = loss(*row)
    if not value.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    found = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
    return list(found)


def hold_to_loop(program: GeneratedProgram, seed: int, size: int, way: dict[str, Any]) -> None:
    columns = program.columns(size, seed)
    loss = loss_of(program.function())
    places = tuple(place for place, kind in enumerate(program.params) if kind in FLOATS)
    if not places:
        return
    try:
        rows = [alone(loss, program.row(columns, i), places) for i in range(size)]
    except Exception as error:
        with pytest.raises(type(error)):
            autobatch.vmap(autobatch.grad(loss, places), **way)(*columns)
        return
    expected = [torch.stack(column) for column in zip(*rows, strict=True)]
    batched = autobatch.vmap(autobatch.grad(loss, places), **way)(*columns)
    compare(batched, expected)
    leaves = [columns[place].clone().requires_grad_() for place in places]
    args = list(columns)
    for place, leaf in zip(places, leaves, strict=True):
        args[place] = leaf
    value = autobatch.vmap(loss, **way)(*args).sum()
    if value.requires_grad:
        got = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
        compare(got, expected)


def compare(got: Any, expected: list[Tensor]) -> None:
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5, equal_nan=True)


def one_way(data: st.DataObject, family: str) -> None:
    program = data.draw(programs(family), label="program")
    note(repr(program))
    way = {**data.draw(st.sampled_from(ENGINES), label="way"), "scalars": program.scalars}
    size = data.draw(st.sampled_from((1, 3, 7)), label="size")
    hold_to_loop(program, data.draw(st.integers(0, 99), label="seed"), size, way)


FAMILIES = ("tensor", "alias", "recursive")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("family", FAMILIES)
@QUICK
@given(data=st.data())
def test_gradients_are_the_loops(data: st.DataObject, family: str) -> None:
    one_way(data, family)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@LONG
@given(data=st.data())
def test_many_gradients_are_the_loops(data: st.DataObject, family: str) -> None:
    one_way(data, family)


ROWS_WRITTEN = """
def program(a, b):
    y = a * b
    for row in y:
        if row > 0:
            row.mul_(b)
        else:
            row.sub_(a[0])
    return y * y
"""


KEPT_WRITTEN = """
def program(a, b):
    y = a * 2
    z = y * y * b
    if b > 0:
        y[1] = z[0]
    else:
        y.mul_(y)
    return z, y.sin()
"""


@pytest.mark.parametrize("way", ENGINES)
def test_what_is_kept_for_the_backward_may_be_written(way: dict[str, Any]) -> None:
    hold_to_loop(GeneratedProgram(KEPT_WRITTEN, ("f3", "f0"), "tensor"), 0, 7, way)


@pytest.mark.parametrize("way", ENGINES)
def test_writes_to_rows_that_a_loop_gives_are_refused_as_in_torch(way: dict[str, Any]) -> None:
    hold_to_loop(GeneratedProgram(ROWS_WRITTEN, ("f3", "f0"), "tensor"), 0, 7, way)


@pytest.mark.parametrize("way", [*ENGINES, {"engine": "sequential"}])
def test_writes_to_parts_of_a_split_are_refused_as_in_torch(way: dict[str, Any]) -> None:
    def loss(y: Tensor) -> Tensor:
        y = y * y
        head, _ = y.split(2)
        head.add_(1)
        return y.sum()

    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        autobatch.vmap(autobatch.grad(loss), **way)(torch.ones(2, 4))


# gradcheck on every program that has float inputs or parameters.

SMOOTH = ["adaptive_computation", "fixed_point", "halting_transformer", "lstm", "runge_kutta"]
SMOOTH += ["shift_reduce", "nuts", "quicksort"]  # merge_sort sorts numbers, without gradients
TREES = ["treelstm", "child_sum_treelstm"]
engines = pytest.mark.parametrize("engine", ["stackless", "program_counter"])


def make_example(name: str) -> Example:
    module = importlib.import_module(f"programs.{name}")
    options = {"inputs": 3, "hidden": 4, "longest": 6} if name == "lstm" else {}
    example: Example = module.example(2, torch.float64, **options)
    return example


def smooth_parts(result: Any) -> list[Tensor]:
    parts = result if isinstance(result, tuple | list) else [result]
    return [part for part in parts if isinstance(part, Tensor) and part.is_floating_point()]


def apart(values: Tensor) -> Tensor:
    """To differentiate at, without ties: a sort has no derivative there."""
    steps = torch.arange(values.numel(), dtype=values.dtype).reshape(values.shape)
    return (values + steps * 1e-3).requires_grad_()


@pytest.mark.sampled(8)
@engines
@pytest.mark.parametrize("name", SMOOTH)
def test_gradcheck_of_inputs(name: str, engine: str) -> None:
    example = make_example(name)
    mapped = autobatch.vmap(example.function, engine=engine, trace_after=0)
    inputs = [apart(arg) if arg.is_floating_point() else arg for arg in example.args]  # type: ignore[union-attr,arg-type]
    made = smooth_parts(mapped(*inputs))
    assert any(part.requires_grad for part in made)
    assert torch.autograd.gradcheck(
        lambda *given: tuple(part for part in smooth_parts(mapped(*given)) if part.requires_grad),
        tuple(inputs),
        fast_mode=True,
        atol=1e-3 if name in ("fixed_point", "runge_kutta") else 1e-5,
    )


@pytest.mark.sampled(6)
@engines
@pytest.mark.parametrize("name", [*TREES, "lstm", "adaptive_computation", "shift_reduce"])
def test_gradcheck_of_parameters(name: str, engine: str) -> None:
    example = make_example(name)
    model = example.function
    assert isinstance(model, nn.Module)
    mapped = autobatch.vmap(model, engine=engine, trace_after=0)
    args = example.mapped(autobatch.objects, autobatch.ragged)
    parameters = [p for p in model.parameters() if p.requires_grad]

    def function(*given: Tensor) -> Any:
        return tuple(smooth_parts(mapped(*args)))

    assert torch.autograd.gradcheck(function, tuple(parameters), fast_mode=True, atol=1e-4)
