"""Default values existed before the call: under no engine does a program write to them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autobatch
from tests.oracle import CONFIGURATIONS

XS = torch.arange(3.0)


class Counting:
    def one(self, x: Tensor, seen: list[Any] = []) -> int:  # noqa: B006
        seen.append(x)
        return len(seen)

    def __call__(self, x: Tensor, *, seen: list[Any] = []) -> int:  # noqa: B006
        seen.append(x)
        return len(seen)


class CountingModule(nn.Module):
    def forward(self, x: Tensor, total: Tensor = torch.zeros(2)) -> Tensor:  # noqa: B008
        total[0] = x
        return total.sum()


COUNTING, MODULE = Counting(), CountingModule()


def positional(x: Tensor, seen: list[Any] = []) -> int:  # noqa: B006
    seen.append(x)
    return len(seen)


def by_name(x: Tensor, *, seen: dict[float, Any] = {}) -> int:  # noqa: B006
    seen[float(x)] = x
    return len(seen)


def a_tensor(x: Tensor, total: Tensor = torch.zeros(2)) -> Tensor:  # noqa: B008
    total[0] = x
    return total.sum()


PROGRAMS: dict[str, Any] = {
    "positional": positional,
    "by name": by_name,
    "a tensor": a_tensor,
    "a method": COUNTING.one,
    "an object that is called": COUNTING,
    "a module": MODULE,
    "of what is called": lambda x: by_name(x) + positional(x),
    "of a method that is called": lambda x: COUNTING.one(x),
    "of an object that is called": lambda x: COUNTING(x),
    "of a module that is called": lambda x: MODULE(x),
    "of what host code calls": lambda x: list(map(by_name, [x, x + 1])),
    "of a key": lambda x: sorted([x, x + 1], key=by_name),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_defaults_stay_as_they_are(name: str) -> None:
    for options in ({}, {"plain": "never"}, *CONFIGURATIONS):
        with pytest.raises(autobatch.UnsupportedError, match=r"existed before|assigns each"):
            autobatch.vmap(PROGRAMS[name], **options)(XS)
    kept = [positional.__defaults__, by_name.__kwdefaults__, Counting.one.__defaults__]
    kept += [Counting.__call__.__kwdefaults__]
    assert kept == [([],), {"seen": {}}, ([],), {"seen": []}]
    for total in (*a_tensor.__defaults__, *CountingModule.forward.__defaults__):  # type: ignore[misc]
        assert torch.equal(total, torch.zeros(2))


def test_defaults_of_what_a_program_makes_are_its_own() -> None:
    def program(x: Tensor) -> Any:
        def inner(v: Tensor, seen: list[Any] = []) -> int:  # noqa: B006
            seen.append(v)
            return len(seen)

        return inner(x) + inner(x)

    for options in ({}, {"plain": "never"}, *CONFIGURATIONS):
        for _ in range(2):
            assert autobatch.vmap(program, **options)(XS).tolist() == [3, 3, 3]


def test_defaults_are_written_where_writes_are_asked_for() -> None:
    def program(x: Tensor, seen: list[Any] = []) -> int:  # noqa: B006
        seen.append(x)
        return len(seen)

    assert autobatch.vmap(program, stateful="sequential")(XS).tolist() == [1, 2, 3]
