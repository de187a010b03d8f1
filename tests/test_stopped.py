"""What stops a run: each message is golden, with file, line, caret, reason and advice."""

from __future__ import annotations

from types import FunctionType
from typing import Any
from unittest import mock

import pytest
import torch

import autobatch
from autobatch.batching.containers.starring import differing
from autobatch.batching.context import Context
from autobatch.batching.converters.registry import _RULES
from autobatch.values.cells import Objects
from autobatch.vm.library import Library
from autobatch.vm.state import RunState, Settings
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


def converts_by_a_wrong_rule() -> None:
    def halved(info: Any, in_dims: Any, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x[: info.batch_size // 2], 0

    with mock.patch.dict(_RULES):
        autobatch.register_converter(torch.special.erfcx)(halved)
        autobatch.vmap(lambda x: torch.special.erfcx(x), plain="never")(XS)


def names_another_result() -> None:
    program = autobatch.lower(stopped.branches)
    text = str(program).replace("-> out", "-> out.a, out.b", 1)
    autobatch.execute(autobatch.parse(text), XS)


def hands_on_different_arguments() -> None:
    """Where no program function is called, so that all threads go on together."""
    context = mock.Mock(spec=Context, span=None)
    raise differing(context, "`*` hands on a number of arguments", Objects([(), (1,)]), [0, 1])


def writes_what_was_taken_for_unwritten() -> None:
    """No program is known that does."""
    state = RunState(Library(), Settings(torch.device("cpu"), 3))
    state.blind = mock.Mock(found=True, is_sole=lambda span: False)
    state.tensor_written(None)


def draws_by_what_has_no_law() -> None:
    autobatch.vmap(lambda x: torch._fused_dropout(x, 0.5)[0], plain="never", seed=0)(XS)


SELDOM = (
    converts_by_a_wrong_rule,
    names_another_result,
    hands_on_different_arguments,
    writes_what_was_taken_for_unwritten,
    draws_by_what_has_no_law,
)


def test_golden_messages_of_what_is_seldom_met() -> None:
    texts = []
    for func in SELDOM:
        with pytest.raises(autobatch.AutobatchError) as caught:
            func()
        texts.append(f"== {func.__name__}\n{caught.value}\n".replace(__file__, "test_stopped.py"))
    assert_golden("stopped_seldom", "\n".join(texts))
