"""Modules that are mapped themselves: each has recordings of its own, however many there are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autobatch
from autobatch.api import LIBRARY
from autobatch.batching.stretches import sites
from autobatch.batching.stretches.drivers import Driver
from autobatch.vm.code import Code
from autobatch.vm.subjects import MOST_SUBJECTS, Subjects

ROWS = torch.randn(4, 3)


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each driver that was asked has answered."""
    asked: list[bool] = []
    fits = Driver.fits

    def noted(self: Driver, *args: Any) -> bool:
        asked.append(fits(self, *args))
        return asked[-1]

    monkeypatch.setattr(Driver, "fits", noted)
    return asked


def run(layer: nn.Module) -> Tensor:
    with torch.no_grad():
        return autobatch.vmap(layer, trace_after=0)(ROWS)  # type: ignore[no-any-return]


def test_the_seventieth_module_is_recorded_like_the_first(driven: list[bool]) -> None:
    layers = [nn.Linear(3, 2) for _ in range(70)]
    for _ in range(3):
        for layer in layers:
            torch.testing.assert_close(run(layer), layer(ROWS))
    driven.clear()
    for layer in layers:
        torch.testing.assert_close(run(layer), layer(ROWS))
    assert driven == [True] * 70


def test_modules_in_turn_do_not_displace_each_others_drivers(driven: list[bool]) -> None:
    layers = [nn.Linear(3, 2) for _ in range(sites.MOST_DRIVERS + 1)]
    for _ in range(3):
        for layer in layers:
            run(layer)
    driven.clear()
    for _ in range(5):
        for layer in layers:
            run(layer)
    assert driven == [True] * 5 * len(layers)


def test_sites_of_their_own_are_kept_for_the_latest_only() -> None:
    kept: Subjects[Code] = Subjects()
    shared = LIBRARY.code_of(run)  # type: ignore[arg-type]
    layers = [nn.Linear(1, 1) for _ in range(MOST_SUBJECTS + 1)]
    first, *others = [kept.code(layer, lambda: shared) for layer in layers]
    assert len(kept.codes) == MOST_SUBJECTS == len({id(code) for code in others})
    assert kept.code(layers[-1], lambda: shared) is others[-1]
    assert kept.code(layers[0], lambda: shared) is not first


class Halved(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        while bool(x.norm() > 1):
            x = x * 0.5
        return x


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("options", [{}, {"plain": "never"}, {"engine": "sequential"}], ids=str)
def test_modules_that_torch_jit_has_compiled(options: dict[str, Any]) -> None:
    linear = nn.Linear(3, 3)
    scripted = torch.jit.script(linear)
    frozen = torch.jit.freeze(torch.jit.script(nn.Linear(3, 3).eval()))

    def within(x: Tensor) -> Tensor:
        return scripted(x) if x.sum() > 0 else frozen(x)

    for module in (scripted, frozen, torch.jit.trace(linear, ROWS), within):
        expected = torch.stack([module(row) for row in ROWS])
        for _ in range(4):
            torch.testing.assert_close(autobatch.vmap(module, **options)(ROWS), expected)
    expected = torch.stack([Halved()(row) for row in ROWS])
    halved = torch.jit.script(Halved())
    torch.testing.assert_close(autobatch.vmap(halved, **options)(ROWS), expected)
