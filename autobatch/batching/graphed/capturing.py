"""What captures launches, and replays them in the memory in which they were captured.

``Capture`` is what captured stretches ask of it; ``CudaCapture`` is ``torch.cuda.CUDAGraph``.

All captures of a device share one pool of memory: what one of them uses within a replay, another
one may use in its own. So whatever is to outlive the next replay of any of them is copied before
it, within the same ``turn``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any, Protocol

import torch
from torch import Tensor

Launch = Callable[[], None]


class Capture(Protocol):
    """Captures what runs on devices of type ``kind``."""

    kind: str

    def reason_against(self) -> str:
        """Why nothing can be captured in this process; empty if it can."""
        ...

    def turn(self, device: torch.device) -> AbstractContextManager[None]:
        """Within, nobody else's replays run on a device: from copying in to copying out."""
        ...

    def capture(
        self, run: Callable[[], Sequence[Tensor]], device: torch.device
    ) -> tuple[Launch, Sequence[Tensor]]:
        """Run and capture: what launches all of it again, and the results, each launch's own.

        It raises what the device refuses, a read on the host say.
        """
        ...


@dataclass(slots=True, eq=False, repr=False)
class Place:
    """What the captures on one device share; ``stream`` is where the last replay ran."""

    pool: Any
    side: torch.cuda.Stream
    stream: torch.cuda.Stream | None = None

    @staticmethod
    def of(device: torch.device) -> Place:
        side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        return Place(torch.cuda.graph_pool_handle(), side)


@dataclass(slots=True, eq=False, repr=False)
class CudaCapture:
    """CUDA graphs. One turn at a time in the process, whichever the host thread and the stream."""

    kind: str = "cuda"
    places: dict[torch.device, Place] = field(default_factory=dict)
    lock: RLock = field(default_factory=RLock)
    failed: list[torch.cuda.CUDAGraph] = field(default_factory=list)

    def reason_against(self) -> str:
        return "" if torch.cuda.is_available() else "there is no CUDA device"

    def place(self, device: torch.device) -> Place:
        found = self.places.get(device)
        if found is None:
            found = self.places[device] = Place.of(device)
        return found

    @contextmanager
    def turn(self, device: torch.device) -> Iterator[None]:
        with self.lock, torch.cuda.device(device):
            place, current = self.place(device), torch.cuda.current_stream(device)
            if place.stream is not None and place.stream != current:
                current.wait_stream(place.stream)  # what it has not copied out yet
            place.stream = current
            yield

    def capture(
        self, run: Callable[[], Sequence[Tensor]], device: torch.device
    ) -> tuple[Launch, Sequence[Tensor]]:
        place = self.place(device)
        current = torch.cuda.current_stream(device)
        place.side.wait_stream(current)
        graph = torch.cuda.CUDAGraph()
        try:
            # The outer context is for captures that fail: they leave the inner one where it was.
            with torch.cuda.stream(place.side):
                run()  # what is made once (handles, workspaces) is made outside the graph
                with torch.cuda.graph(
                    graph, pool=place.pool, stream=place.side, capture_error_mode="thread_local"
                ):
                    outs = run()
        except Exception:
            self.places[device] = replace(Place.of(device), stream=place.stream)
            self.recover(graph, place)
            raise
        finally:
            current.wait_stream(place.side)
        return graph.replay, outs

    def recover(self, failed: torch.cuda.CUDAGraph, place: Place) -> None:
        """After a capture that failed: torch's generator draws again, for the program too.

        torch takes it for a part of the capture until one ends, so another one does. The allocator
        may ask the failed graph later on which streams it was to serve: it has to stay.
        """
        self.failed.append(failed)
        with torch.cuda.stream(place.side):
            x = torch.zeros(1, device=place.side.device)
            with torch.cuda.graph(
                torch.cuda.CUDAGraph(), stream=place.side, capture_error_mode="thread_local"
            ):
                x.add_(1)
