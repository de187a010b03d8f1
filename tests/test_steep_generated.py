"""Generated programs whose operations have infinite derivatives, or none: gradients are the loop's.

What an example computes and does not use adds nothing to its derivatives: neither where its own
rows lie beside those of examples that use them, nor where all share what has been computed. Each
program has a value of its example's own, ``x``, a number ``n``, and two tensors that all share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st
from torch import Tensor

import autobatch
from tests.generator.record import load_module
from tests.test_gradients_present import WAYS
from tests.test_properties import LONG, QUICK

HELPERS = """
import torch
import autobatch

ONES = torch.ones(3, dtype=torch.float64)


def forked(a, depth):
    if depth <= 0:
        return a
    kept = forked(a * 0.9, depth - 1)
    forked(a.sqrt(), depth - 2)
    return kept


def grown(a, n):
    rows = [a]
    for _ in range(n):
        rows.append(rows[-1] * 1.1)
    return rows


def written(a, where, value):
    made = a.clone()
    made[where] = value
    return made


def squares(a):
    total, k = a.sum() * 0, 0
    while k < 3 and total < 5:
        total, k = total + (a * a).sum(), k + 1
    return total


@autobatch.per_thread
def host(a):
    return a * 2
"""
STEEP = (
    "{a}.sqrt()",
    "{a}.log()",
    "{a} ** 0.5",
    "1 / {a}",
    "{a} / {b}",
    "{a}.acos()",
    "{a}.norm()",
)
MOVED = (
    *("{a}.flip(0)", "{a}.roll(1)", "{a}[[2, 0, 1]]", "{a}.take(torch.tensor([0, n % 3, 1]))"),
    *(
        "written({a}, n % 3, {b}[0])",
        "written({a}, [0, 2], {b}[1])",
        "{a}[n % 3]",
        "{a}[n % 2 :].sum()",
    ),
    *("{a}[{a} > 0].sum()", "{a}.sort().values", "{a}.cumsum(0)", "torch.stack([{a}, {b}])[n % 2]"),
    *(
        "torch.stack([{a}, {b}])[1]",
        "{a}.index_add(0, torch.tensor([n % 3]), {b}[:1])",
        "{a}.expand(2, 3)[1]",
    ),
)
MET = (
    *(
        "{a} + {b}",
        "{a} * {b}",
        "{a} - {b}",
        "M @ {a}",
        "{a} * {b}.sum()",
        "{a}.tanh()",
        "{a}.softmax(0)",
    ),
    *(
        "max({a}[0], {b}[1])",
        "min({a}.sum(), {b}[0])",
        "({a} if n > 1 else {b})",
        "torch.lerp({a}, {b}, 0.5)",
    ),
    *("forked({a}, n % 3)", "forked({a}, 2)", "grown({a}, n)[-1]", "torch.stack(grown({a}, n))[0]"),
    *(
        "autobatch.grad(squares)({a})",
        "autobatch.grad(lambda q: (q * {b}).sum())({a})",
        "host({a})",
    ),
    *("torch.func.grad(lambda q: (q * q).sum())({a})", "autobatch.pfor(lambda i: {a}[i] * 2, 3)"),
)
TESTS = ("n > 2", "n == 0", "n % 2", "n < 2", "n > 100", "x[0] > 0")


@st.composite
def texts(draw: st.DrawFn) -> str:
    """The body of a program, a line each."""
    names, lines = ["x", "w", "u"], list[str]()

    def value() -> str:
        form = draw(st.sampled_from((*STEEP, *STEEP, *MOVED, *MET)))
        a, b = (draw(st.sampled_from(names)) for _ in range(2))
        return f"{form.format(a=a, b=b)} * ONES"

    def statement(indent: str, depth: int) -> None:
        kind = draw(
            st.sampled_from(("value", "value", "value", "branch", "loop", "write", "return"))
        )
        if kind == "branch" and depth < 2:
            lines.append(f"{indent}if {draw(st.sampled_from(TESTS))}:")
            statement(indent + "    ", depth + 1)
        elif kind == "loop" and depth < 2:
            lines.append(f"{indent}for _ in range({draw(st.sampled_from(('n', '2')))}):")
            statement(indent + "    ", depth + 1)
        elif kind == "write" and not indent:
            name = f"m{len(names)}"
            lines.extend((f"{name} = torch.zeros(3, dtype=torch.float64)", f"{name} += {value()}"))
            names.append(name)
        elif kind == "return" and depth < 2:
            lines.append(f"{indent}if {draw(st.sampled_from(TESTS))}:")
            lines.append(f"{indent}    return ({draw(st.sampled_from(names))} * w).sum() + x.sum()")
        else:
            new = f"v{len(names)}"
            name = draw(st.sampled_from([name for name in names if name not in "wu"] + [new]))
            name = new if not indent and name == new else (name if name != new else "x")
            lines.append(f"{indent}{name} = {value()}")
            if name not in names:
                names.append(name)

    for _ in range(draw(st.integers(2, 6))):
        statement("", 0)
    first, second = (draw(st.sampled_from(names)) for _ in range(2))
    lines.append(f"return ({first} * w).sum() + ({second} * u).sum() + x.sum()")
    return "\n".join(f"    {line}" for line in lines)


def hold_to_loop(body: str, seed: int, size: int, way: dict[str, Any]) -> None:
    note(body)
    module = load_module(f"{HELPERS}\n\ndef program(x, n, w, u):\n{body}\n")
    source = torch.Generator().manual_seed(seed)
    module.M = torch.randn(3, 3, generator=source, dtype=torch.float64)
    tensors = [
        torch.randn(*shape, generator=source, dtype=torch.float64)
        for shape in ((size, 3), (3,), (3,))
    ]
    ns = torch.randint(0, 5, (size,), generator=source)

    def loop(xs: Tensor, ns: Tensor, w: Tensor, u: Tensor) -> Tensor:
        return torch.stack([module.program(x, int(n), w, u) for x, n in zip(xs, ns, strict=True)])

    batch = autobatch.vmap(module.program, in_dims=(0, 0, None, None), scalars="python", **way)
    try:
        want = gradients(loop, tensors, ns)
    except RuntimeError:  # of a write to what the loop keeps for its backward
        return
    for _ in range(4):
        found = gradients(batch, tensors, ns)
        for mine, its in zip(found, want, strict=True):
            finite = its.isfinite()
            torch.testing.assert_close(mine[finite], its[finite], rtol=1e-6, atol=1e-8)


def gradients(
    results: Callable[..., Tensor], tensors: list[Tensor], ns: Tensor
) -> tuple[Tensor, ...]:
    xs, w, u = (each.clone().requires_grad_() for each in tensors)
    total = results(xs, ns, w, u).sum()
    return torch.autograd.grad(total, (xs, w, u), materialize_grads=True)


@pytest.mark.parametrize("way", WAYS)
@settings(QUICK, max_examples=20)
@given(body=texts(), seed=st.integers(0, 999), size=st.sampled_from((1, 2, 7)))
def test_gradients(body: str, seed: int, size: int, way: str) -> None:
    hold_to_loop(body, seed, size, WAYS[way])


@pytest.mark.slow
@pytest.mark.parametrize("way", [*WAYS, "default"])
@LONG
@given(body=texts(), seed=st.integers(0, 999), size=st.sampled_from((1, 2, 7, 64)))
def test_gradients_of_many(body: str, seed: int, size: int, way: str) -> None:
    hold_to_loop(body, seed, size, WAYS.get(way, {}))
