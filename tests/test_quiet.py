"""A user's error that meets a recording says what it has to say once, in its exception."""

from __future__ import annotations

import logging
import threading

import pytest
import torch
from torch import nn
from torch._subclasses import fake_tensor

import autobatch
from autobatch.compat import quiet


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x)


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)

    def forward(self, x):
        return self.cell(torch.tanh(x))


def late(x):
    i = 0
    while i < 4:
        x = torch.tanh(x)
        i += 1
        if i == 3:
            x = x @ torch.ones(3, 3)
    return x


@pytest.mark.parametrize("program", [Layer(), Cell(), late], ids=["linear", "cell", "late"])
@pytest.mark.parametrize("trace_after", [0, 2])
def test_nothing_is_logged(program, trace_after, capfd, caplog):
    for _ in range(3):
        with pytest.raises(RuntimeError):
            autobatch.vmap(program, trace_after=trace_after)(torch.ones(3, 4))
    assert capfd.readouterr().err == ""
    assert not caplog.records
    assert not fake_tensor.log.disabled
    assert not fake_tensor.log.filters


def test_other_host_threads_log_as_ever():
    seen = []

    class Handler(logging.Handler):
        def emit(self, record):
            seen.append(record.getMessage())

    handler = Handler()
    fake_tensor.log.addHandler(handler)
    try:
        with quiet():
            fake_tensor.log.error("own")
            other = threading.Thread(target=fake_tensor.log.error, args=("other",))
            other.start()
            other.join()
        fake_tensor.log.error("after")
    finally:
        fake_tensor.log.removeHandler(handler)
    assert seen == ["other", "after"]
