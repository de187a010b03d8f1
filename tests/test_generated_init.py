"""``super().__init__`` into what ``dataclasses`` has made, which has no source: where it stands."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch


@dataclasses.dataclass
class Base:
    a: Any
    b: int = 2


class Kid(Base):
    def __init__(self, a: Tensor) -> None:
        super().__init__(a, b=3)


def kid(x: Tensor) -> Tensor:
    return Kid(x).a * 2


@pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])
def test_the_refusal_has_a_place_and_says_what_to_write(engine: str) -> None:
    with pytest.raises(autobatch.UnsupportedError, match="`__post_init__`") as caught:
        autobatch.vmap(kid, engine=engine)(torch.ones(3))
    assert caught.value.filename == __file__
    assert caught.value.lineno == Kid.__init__.__code__.co_firstlineno + 1
    assert "super().__init__(a, b=3)\n" in str(caught.value)
    assert "^^^ called here" in str(caught.value)
