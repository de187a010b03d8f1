"""What stops a run: each message is golden, with file, line, caret, reason and advice."""

from __future__ import annotations

from types import FunctionType
from typing import Any
from unittest import mock

import pytest
import torch

import autobatch
from tests import stopped
from tests.goldens import assert_golden

XS = torch.tensor([1.0, -2.0, 3.0])
HELPERS = ("replaced", "switched")
OPTIONS: dict[str, dict[str, Any]] = {
    "draws_from_a_generator": {"seed": 0},
    "pulls_back_through_draws": {"randomness": "different"},
    "loops_no_rounds": {"engine": "sequential"},
    "counts_down": {"max_steps": 5},
    "goes_down": {"max_depth": 2},
    "finds_what_is_unique": {"fallback": "error"},
}


def message(name: str, func: Any) -> str:
    xs = XS[:0] if name == "branches" else XS
    try:
        with pytest.raises(autobatch.AutobatchError) as caught:
            autobatch.vmap(func, **{"plain": "never", **OPTIONS.get(name, {})})(xs)
    finally:
        mock.patch.stopall()
        torch.set_grad_enabled(True)
    return str(caught.value).replace(stopped.__file__, "stopped.py")


def test_golden_messages() -> None:
    own = {
        name: value
        for name, value in vars(stopped).items()
        if isinstance(value, FunctionType) and name not in HELPERS
    }
    texts = [f"== {name}\n{message(name, func)}\n" for name, func in own.items()]
    made: dict[str, Any] = {}
    exec("def typed(x):\n    return x", made)
    texts.append(f"== typed\n{message('typed', made['typed'])}\n")
    assert_golden("stopped", "\n".join(texts))
