"""Tensors of an array's memory: a write to either is seen in both, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch
from tests.outside_world import program

NAMES = {"np": np, "torch": torch}
MADE = ("torch.from_numpy(a)", "torch.as_tensor(a)", "torch.asarray(a)", "torch.from_dlpack(a)")
WRITES = (
    *("a[1, 0] = n", "a[1] -= n", "q = a.reshape(6); q -= n", "q = a[1:]; q += n", "a.T[1] = n"),
    *("a.flat[1] = n", "a.ravel()[1] = n", "a.view()[1] = n", "np.asarray(a)[1] = n", "a.fill(n)"),
    *("np.squeeze(a[None])[1] = n", "np.copyto(a[1:], n)", "np.add(a, n, out=a)", "a[::-1].sort()"),
    *("[r.fill(n) for r in a]", "[a][0][1] = n", "list(a)[1][0] = n", "a.swapaxes(0, 1)[0] = n"),
    *("t[0, 1] = n", "t.add_(n)", "t[1:] = n", "t.view(6)[2] = n", "put(a[1:], n)", "put(t, n)"),
    *("put(a.T, n)", "before[0] = n", "put(before, n)", "max([a], key=len)[0] = n"),
)
HEAD = ["a = np.arange(6.0).reshape(2, 3) + n", "before = a[1:]", "def put(x, n): x[0] = n"]
FINE = (
    ["t = None", "for i in range(2):", "    u = torch.from_numpy(a)", "    a[i] += float(u.sum())"],
    ["t = torch.from_numpy(a).clone()", "a[0] = n", "before += 1"],
    ["t = torch.tensor(a)", "a[0] = n", "before += 1"],
    ["n += float(torch.from_numpy(a).sum())", "t = None", "before += 1", "a[0] = n"],
    ["t = torch.from_numpy(a.copy())", "a[0] = n"],
    ["t = torch.from_numpy(a)", "c = a.copy()", "c[0] = n", "d = np.zeros(3)", "d += n"],
)
ENGINES = ("stackless", "program_counter", "sequential")


def made(name: str, lines: list[str]) -> Any:
    end = "return str((a.tolist(), before.tolist(), t if t is None else t.tolist()))"
    own = [line for each in lines for line in each.split("; ")]
    return program(f"memory {name}", ["n = x", *HEAD, *own, end], dict(NAMES))


@pytest.mark.sampled(16)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("write", WRITES)
def test_a_write_is_seen_in_both_or_refused(write: str, engine: str) -> None:
    for tensor in MADE[len(write) % 2 :: 2]:
        func = made(f"{write} {tensor}", [f"t = {tensor}", write])
        expected = [func(n) for n in range(3)]
        try:
            found = autobatch.vmap(func, plain="never", engine=engine)(autobatch.objects([0, 1, 2]))
        except autobatch.AutobatchError as error:
            assert engine != "sequential" and "another of its names" in str(error)
            assert "^^^" in str(error)
        else:
            assert found == expected
        assert (
            autobatch.vmap(func, engine=engine, stateful="sequential")(autobatch.objects([0, 1, 2]))
            == expected
        )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("place", range(len(FINE)))
def test_what_no_tensor_stands_for_may_be_written(place: int, engine: str) -> None:
    func = made(str(place), FINE[place])
    expected = [func(n) for n in range(3)]
    for plain in ("never", "auto"):
        batched = autobatch.vmap(func, plain=plain, engine=engine)
        assert batched(autobatch.objects([0, 1, 2])) == expected


TO_TENSOR = ("torch.from_numpy({})", "torch.as_tensor({})", "torch.asarray({})")
TO_ARRAY = ("{}.numpy()", "np.asarray({})", "{}.__array__()", "np.from_dlpack({})")
OF_A_TENSOR = ("{}", "{}[1:]", "{}.view(-1)", "{}.flip(0)", "{}.clone()", "{}.detach()")
OF_AN_ARRAY = ("{}", "{}[1:]", "{}.reshape(-1)", "{}.copy()")
TO_WRITE_AN_ARRAY = ("{}[0] = 9", "{} += n", "np.add({0}, 1, out={0})", "{}.fill(4)")
TO_WRITE_A_TENSOR = (
    "{}[0] = 9",
    "{} += n",
    "{}.add_(1)",
    "{}.fill_(4)",
    "torch.add({0}, 1, out={0})",
)


@st.composite
def chains(draw: st.DrawFn) -> list[str]:
    """Arrays and tensors made of one another, some of one memory, and writes to some of them."""
    names = [draw(st.sampled_from(["a0", "t0"]))]
    lines = [f"{names[0]} = {'np' if names[0] == 'a0' else 'torch'}.arange(4.0) + n"]

    def write() -> None:
        name = draw(st.sampled_from(names))
        writes = TO_WRITE_AN_ARRAY if name[0] == "a" else TO_WRITE_A_TENSOR
        lines.append(draw(st.sampled_from(writes)).format(name))

    for number in range(1, draw(st.integers(2, 5))):
        source = draw(st.sampled_from(names))
        crosses, is_array = draw(st.booleans()), source[0] == "a"
        name = f"{'a' if is_array != crosses else 't'}{number}"
        if crosses:
            ways = TO_TENSOR if is_array else TO_ARRAY
        else:
            ways = OF_AN_ARRAY if is_array else OF_A_TENSOR
        lines.append(f"{name} = " + draw(st.sampled_from(ways)).format(source))
        names.append(name)
        if len(names) > 2 and draw(st.integers(0, 4)) == 0:
            lines.append(f"{names.pop(0)} = None")
        if draw(st.integers(0, 2)) == 0:
            write()
    write()
    write()
    return [*lines, f"return str([{', '.join(f'{name}.tolist()' for name in names)}])"]


@settings(max_examples=40, deadline=None)
@given(chains(), st.sampled_from(ENGINES))
def test_writes_along_chains_are_seen_or_refused(lines: list[str], engine: str) -> None:
    func = program("; ".join(lines), ["n = x", *lines], dict(NAMES))
    expected = [func(n) for n in range(3)]
    for plain in ("never", "auto"):
        batched = autobatch.vmap(func, plain=plain, engine=engine)
        try:
            found = batched(autobatch.objects([0, 1, 2]))
        except autobatch.AutobatchError as error:
            assert engine != "sequential" and "another of its names" in str(error)
        else:
            assert found == expected
