"""Copies between a CUDA device and pinned host memory, on streams of their own.

One stream copies out and one back, so that neither waits for the other or for kernels; events order
them where data depends on it. A device without such streams has no transfer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OnHost:
    """Bytes in pinned memory, there once ``ready``."""

    data: Tensor
    ready: torch.cuda.Event


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Coming:
    """Bytes on the device, there once ``ready``."""

    data: Tensor
    ready: torch.cuda.Event


@dataclass(slots=True, eq=False, repr=False)
class CudaTransfer:
    """The two copy streams of a device."""

    device: torch.device
    outward: torch.cuda.Stream = field(init=False)
    inward: torch.cuda.Stream = field(init=False)

    def __post_init__(self) -> None:
        self.outward = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        self.inward = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def out(self, data: Tensor) -> OnHost:
        host = torch.empty(data.shape, dtype=data.dtype, pin_memory=True)
        self.outward.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.outward):
            host.copy_(data, non_blocking=True)
            ready = self.outward.record_event()
        data.record_stream(self.outward)  # its memory is not given away before that
        return OnHost(host, ready)

    def back(self, held: OnHost) -> Coming:
        with torch.cuda.stream(self.inward):
            self.inward.wait_event(held.ready)
            data = torch.empty(held.data.shape, dtype=held.data.dtype, device=self.device)
            data.copy_(held.data, non_blocking=True)
            ready = self.inward.record_event()
        return Coming(data, ready)

    def arrived(self, coming: Coming) -> Tensor:
        current = torch.cuda.current_stream(self.device)
        current.wait_event(coming.ready)
        coming.data.record_stream(current)
        return coming.data

    def rest(self) -> None:
        torch.cuda.current_stream(self.device).wait_stream(self.outward)


def transfer_of(device: torch.device) -> CudaTransfer | None:
    """A device's transfer; None where memory is the host's already, or not CUDA's."""
    return CudaTransfer(device) if device.type == "cuda" else None
