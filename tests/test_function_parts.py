"""What a function runs, and its defaults, stay what the program's text says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch


def other(u: Any) -> Any:
    return u * 3


def another_code(x: Tensor) -> Tensor:
    def step(u: Any) -> Any:
        return u * 0.5

    step.__code__ = other.__code__
    return step(x)


def other_defaults(x: Tensor) -> Tensor:
    def step(u: Any, k: int = 1) -> Any:
        return u * 0.5 + k

    step.__defaults__ = (3,)
    return step(x)


def other_keyword_defaults(x: Tensor) -> Tensor:
    def step(u: Any, *, k: int = 1) -> Any:
        return u * 0.5 + k

    step.__kwdefaults__ = {"k": 3}
    return step(x)


@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
@pytest.mark.parametrize("program", [another_code, other_defaults, other_keyword_defaults])
def test_others_are_refused(program: Any, engine: Any) -> None:
    batched = autobatch.vmap(program, engine=engine, plain="never")
    with pytest.raises(autobatch.UnsupportedError, match="may not give a function"):
        batched(torch.ones(2))
