"""What programs read of classes by name (``Settings.scale``), as machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop
from tests.test_compiled import why_not

pytest.importorskip("llvmlite")

COMPILED = {"executor": "compiled"}
X = torch.arange(7)


class Base:
    offset = 1
    weight = torch.tensor(2.0)


class Naming(type):
    @property
    def size(cls) -> int:
        return len(cls.__name__)


class Settings(Base):
    scale = 3

    @staticmethod
    def twice(x: Any) -> Any:
        return x * 2

    def moved(self, x: Any) -> Any:
        return x + 1

    @property
    def total(self) -> int:
        return self.scale


class Named(metaclass=Naming):
    scale = 2


def held(function: Callable[..., Any]) -> None:
    for scalars in ("python", "tensor"):
        batch = autobatch.vmap(function, scalars=scalars, **COMPILED)
        assert_matches_loop(function, (X,), scalars=scalars, configurations=(COMPILED,))
        with autobatch.counts() as found:
            batch(X)
        assert (found.block_executions, found.launches, found.given_up) == (1, 1, 0)


OF_SETTINGS = (
    lambda x: x * Settings.scale + Settings.offset,
    lambda x: x * Settings.weight,
    lambda x: Settings.twice(x),
    lambda x: Settings.moved(None, x),  # type: ignore[arg-type]
)


@pytest.mark.parametrize("function", OF_SETTINGS)
def test_what_a_class_has_is_read_as_it_is_now(
    function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    held(function)
    monkeypatch.setattr(Settings, "scale", 5)
    monkeypatch.setattr(Base, "offset", 2.5)
    held(function)
    monkeypatch.setattr(Settings, "offset", 7, raising=False)
    monkeypatch.setattr(Settings, "weight", torch.tensor(3), raising=False)
    monkeypatch.setattr(Settings, "twice", staticmethod(lambda x: x * 9))
    monkeypatch.setattr(Settings, "moved", lambda self, x: x - 7)
    held(function)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: x + (Settings.total is None), "total"),
        (lambda x: x + len(Settings.__name__), "__name__"),
        (lambda x: x + Named.size, "size"),
    ],
)
def test_what_the_class_of_a_class_says_has_no_machine_code(
    function: Callable[..., Any], name: str
) -> None:
    assert f"the attribute {name} of" in why_not(function, X, scalars="python")
