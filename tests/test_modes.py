"""Our dispatch modes go off by all means: an interrupt as torch puts one on or takes it off."""

from __future__ import annotations

import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from autobatch.modes import DispatchMode, take_off


class Seeing(DispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def interrupted_at(step: int) -> bool:
    """Whether the interrupt came: in torch's own code of going on or off, after so many lines."""
    left = step

    def trace(frame, event, arg):
        nonlocal left
        if frame.f_code not in (
            TorchDispatchMode.__enter__.__code__,
            TorchDispatchMode.__exit__.__code__,
        ):
            return None
        if event == "line":
            left -= 1
            if not left:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with Seeing():
            pass
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_leaves_none_on():
    before, step = _get_current_dispatch_mode_stack(), 0
    while interrupted_at(step := step + 1):
        assert _get_current_dispatch_mode_stack() == before
    assert step > 15
    assert torch.ones(2).sum() == 2


@pytest.mark.parametrize("place", [0, 1, 2])
def test_those_above_stay(place):
    modes = [Seeing(), Seeing(), Seeing()]
    before = _get_current_dispatch_mode_stack()
    with modes[0], modes[1], modes[2]:
        take_off(modes[place])
        left = [each for each in modes if each is not modes[place]]
        assert _get_current_dispatch_mode_stack() == [*before, *left]
        take_off(modes[place])
        for each in left:
            take_off(each)
        for each in modes:
            torch.utils._python_dispatch._push_mode(each)
    assert _get_current_dispatch_mode_stack() == before
