"""Loops whose lap is one replay: what of its results the next lap takes.

In: what a driver is printed of. Out: its ``Feed``s, and by way of them the ``Loop`` that it is.
Nothing else may change from lap to lap: no counter of the host's, no number, no tensor that all
threads share, no second name for a tensor, no attribute. A driver that has run several laps on end
has found all that it checks to hold of what its own results make.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from autobatch.batching.fused import Loop
from autobatch.batching.stretches.plans import Plan, Skeleton
from autobatch.batching.stretches.printer import Printer
from autobatch.values.cells import Column


@dataclass(frozen=True, slots=True)
class Feed:
    """The input at ``place`` is the column, tagged ``tag``, that a variable is."""

    place: int
    name: str
    tag: str


def fed(printer: Printer, skeleton: Skeleton, changing: Set[str]) -> tuple[Feed, ...] | None:
    """The inputs that a lap of a loop may change; None where it may change anything else.

    ``changing`` are the local names of the driver that hold something else in each lap.
    """
    host = {out for op in skeleton.host for out in op.outs}
    if any(printer.objs.get(out, printer.cells.get(out)) in changing for out in host):
        return None
    if skeleton.stores:
        return None
    variables = {f"env[{name!r}]": name for name in printer.given}
    feeds = []
    for place, (operand, cell) in enumerate(printer.inputs):
        if operand.partition("[")[0] not in changing:
            continue
        name = variables.get(cell, "")
        value = printer.env[name].value if name else None
        if type(value) is not Column or operand not in printer.columns:
            return None
        feeds.append(Feed(place, name, value.tag))
    return tuple(feeds)


def loop_of(plan: Plan, feeds: Sequence[Feed], condition: str, stays: bool) -> Loop | None:
    """The loop that a plan is a lap of, which goes on where ``condition`` is ``stays``."""
    if plan.written or plan.checks or plan.loose is not None or plan.forecasts or plan.fixed:
        return None
    made = {name: plan.template.nodes[number] for name, number in plan.names}
    if condition not in made or any(n.kind != "column" or n.static for n in made.values()):
        return None
    again = [feed for feed in feeds if feed.name in made]
    if any(made[feed.name].tag != feed.tag for feed in again):
        return None
    if len({made[feed.name].slot for feed in again}) < len(again):
        return None
    carried = tuple((feed.place, made[feed.name].slot) for feed in again)
    return Loop(carried, made[condition].slot, stays)
