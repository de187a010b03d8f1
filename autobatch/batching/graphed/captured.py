"""One capture: a recording at one width, in memory that stays where it is.

    ins[:k] ← the columns of k threads            copied, one launch a dtype
    graph:   rows = ins[lookup]                    lookup = 0, 1, …, k - 1, k - 1, …, k - 1
             outs = replay(width, *rows)
    fresh ← outs[:k]                               copied, one launch a dtype

The rows behind the last thread's are that thread's once more, so nothing is computed of what is no
thread's. ``lookup`` is written when another number of threads comes. What all threads share is read
where it is, for as long as it is there (an optimizer's step in place is seen); where it has been
another tensor before, it is copied too. Numbers are part of the captured kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from autobatch.batching.graphed.buffers import Copies, Layout, Refused, width_of
from autobatch.batching.graphed.capturing import Capture, Launch
from autobatch.batching.graphed.results import Results

LARGEST = 2**20
"""Bytes of what all threads share that are copied for a launch, at most."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A tensor that all threads share, read where it is; ``address`` is of its first element."""

    place: int
    tensor: Callable[[], Tensor | None]
    address: int

    @staticmethod
    def of(place: int, tensor: Tensor) -> Fixed:
        return Fixed(place, ref(tensor), tensor.data_ptr())

    def is_still(self, values: Sequence[Any]) -> bool:
        """Whether it is what comes in now, and where it was."""
        value: Tensor = values[self.place]
        return self.tensor() is value and value.data_ptr() == self.address


@dataclass(slots=True, eq=False, repr=False)
class Views:
    """The rows of ``k`` threads in the memory of a capture."""

    k: int
    ins: Sequence[Tensor]
    outs: Sequence[Tensor]


@dataclass(frozen=True, slots=True)
class Form:
    """How a recording's inputs and what it makes lie: ``columns`` by place, ``outs`` in order.

    ``reads`` are the places of the inputs that it computes with, ``moving`` those of tensors that
    all threads share and that are copied.
    """

    columns: Mapping[int, Layout]
    reads: Set[int]
    moving: Set[int]
    results: Results
    outs: Sequence[Layout]


@dataclass(slots=True, eq=False, repr=False)
class Captured:
    """``run(k, values)`` is the recording's replay, for up to ``width`` threads."""

    width: int
    form: Form
    statics: Mapping[int, Tensor]
    fixed: Sequence[Fixed]
    ramp: Tensor
    lookup: Tensor
    ins: Copies
    launch: Launch = field(init=False)
    outs: Sequence[Tensor] = field(init=False)
    results: Copies = field(init=False)
    views: Views | None = None
    launched: int = 0

    @staticmethod
    def of(
        form: Form, device: torch.device, capture: Capture, k: int, values: Sequence[Any]
    ) -> Captured:
        """Capture for the width of ``k`` threads; call it within a turn."""
        width = width_of(k)
        statics = {place: layout.empty(width) for place, layout in form.columns.items()}
        statics |= {place: like(values[place]) for place in sorted(form.moving & form.reads)}
        fixed = [
            Fixed.of(place, value)
            for place, value in enumerate(values)
            if isinstance(value, Tensor) and place in form.reads and place not in statics
        ]
        ramp = torch.arange(width, device=device)
        ins = Copies.of(list(statics.values()))
        made = Captured(width, form, statics, fixed, ramp, ramp.clone(), ins)
        made.copy_in(made.viewed(k), values)
        made.launch, made.outs = capture.capture(lambda: made.body(values), device)
        made.results = Copies.of(made.outs)
        made.views = None
        return made

    def body(self, values: Sequence[Any]) -> Sequence[Tensor]:
        """What is captured."""
        given = list(values)
        for place, static in self.statics.items():
            layout = self.form.columns.get(place)
            given[place] = static if layout is None else self.padded(layout, static)
        return self.form.results.replay(self.width, *given)

    def padded(self, layout: Layout, static: Tensor) -> Tensor:
        rows = layout.empty(self.width)
        torch.index_select(static, 0, self.lookup, out=rows)
        return layout.whole(rows, self.width)

    def is_still(self, values: Sequence[Any]) -> bool:
        """Whether what all threads share is what it was."""
        return all(each.is_still(values) for each in self.fixed)

    def moved(self, values: Sequence[Any]) -> set[int]:
        """The places of what all threads share that is something else now."""
        return {each.place for each in self.fixed if not each.is_still(values)}

    @property
    def cost(self) -> int:
        """How many launches a run takes: copies in, the graph, copies out."""
        return self.ins.launches + 1 + self.results.launches

    def run(self, k: int, values: Sequence[Any]) -> tuple[Tensor, ...]:
        """Call it within a turn; the results are the caller's."""
        views, self.launched = self.views, self.cost
        if views is None or views.k != k:
            views = self.viewed(k)
        self.copy_in(views, values)
        self.launch()
        outs = self.form.outs
        fresh = [layout.empty(k) for layout in outs]
        self.results.copy(fresh, views.outs)
        made = [layout.whole(each, k) for layout, each in zip(outs, fresh, strict=True)]
        return self.form.results.all(k, values, made)

    def copy_in(self, views: Views, values: Sequence[Any]) -> None:
        self.ins.copy(views.ins, [values[place] for place in self.statics])

    def viewed(self, k: int) -> Views:
        """The views of so many threads, from now on; the padding repeats the last of them."""
        torch.clamp(self.ramp, max=k - 1, out=self.lookup)
        self.launched += 1
        columns = self.form.columns
        ins = [
            static if place not in columns else columns[place].once(static, k)
            for place, static in self.statics.items()
        ]
        made = getattr(self, "outs", ())
        outs = [own.once(out, k) for own, out in zip(self.form.outs, made, strict=False)]
        self.views = Views(k, ins, outs)
        return self.views


def like(tensor: Tensor) -> Tensor:
    """Memory for another tensor of a shape and strides."""
    if tensor.nbytes > LARGEST:
        raise Refused(f"{tensor.nbytes:,} bytes that all threads share are others each time")
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    reach = 1 + sum((size - 1) * stride for size, stride in pairs)
    if tensor.numel() and reach != tensor.numel():
        raise Refused("a tensor that all threads share is another one each time, and not dense")
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
