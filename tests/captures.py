"""A stand-in for CUDA graphs, on the CPU: what is captured is launched again, in the same memory.

Capturing runs a function and writes down each operator with the tensors that it got and gave.
Launching runs the operators once more, in order, and copies what each makes to where it was made
when it was captured; before that, all that memory is overwritten with rubbish. So whatever reads a
result of an earlier launch reads rubbish or the newer result, what reads an input that was not
copied to where it was captured computes with an old one, and Python's decisions and numbers are
those of the capture, as in a graph on a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

FORBIDDEN = frozenset({"aten._local_scalar_dense.default", "aten.nonzero.default"})
RUBBISH = 0x5A


def storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def tensors_of(made: Any) -> list[Tensor]:
    items = made if isinstance(made, (tuple, list)) else (made,)
    return [item for item in items if isinstance(item, Tensor)]


class Recorder(TorchDispatchMode):
    """Writes operators down; what a device refuses while it captures is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if str(func) in FORBIDDEN:
            raise RuntimeError("operation not permitted when stream is capturing")
        out = func(*args, **(kwargs or {}))
        self.events.append((func, args, kwargs or {}, out))
        return out


@dataclass(eq=False)
class Launch:
    """The operators of a capture; ``own`` is the memory that they have made."""

    events: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]]
    own: list[Tensor]
    times: int = 0

    def __call__(self) -> None:
        self.times += 1
        for each in self.own:
            each.untyped_storage().fill_(RUBBISH)
        for func, args, kwargs, out in self.events:
            schema = func._schema
            if any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns):
                continue  # a view shows what is there
            again = func(*args, **kwargs)
            if any(r.alias_info is not None for r in schema.returns) or schema.is_mutable:
                continue  # it has written where it wrote before
            for there, made in zip(tensors_of(out), tensors_of(again), strict=True):
                assert (there.shape, there.stride()) == (made.shape, made.stride())
                there.copy_(made)


@dataclass(eq=False)
class StandIn:
    """Captures on the CPU; ``launches`` are those it has made, ``turns`` how many turns began."""

    kind: str = "cpu"
    launches: list[Launch] = field(default_factory=list)
    turns: int = 0
    inside: bool = False

    def reason_against(self) -> str:
        return ""

    @contextmanager
    def turn(self, device: torch.device) -> Iterator[None]:
        assert not self.inside and device.type == "cpu"
        self.turns += 1
        self.inside = True
        try:
            yield
        finally:
            self.inside = False

    def capture(
        self, run: Callable[[], Sequence[Tensor]], device: torch.device
    ) -> tuple[Launch, Sequence[Tensor]]:
        assert self.inside
        run()
        with Recorder() as recorder:
            outs = tuple(run())
        own: dict[int, Tensor] = {}
        seen: set[int] = set()
        for _, args, kwargs, out in recorder.events:
            flat = [*args, *kwargs.values()]
            given = [t for arg in flat for t in tensors_of(arg)]
            seen |= {storage(each) for each in given if storage(each) not in own}
            for each in tensors_of(out):
                if storage(each) not in seen:
                    own.setdefault(storage(each), each)
        launch = Launch(recorder.events, list(own.values()))
        self.launches.append(launch)
        return launch, outs

    @property
    def launched(self) -> int:
        """How many launches there have been."""
        return sum(each.times for each in self.launches)
