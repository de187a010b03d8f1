"""The lines of a driver, in order: the modes it was planned in, its inputs, its host operations.

In: a skeleton that has run, and what its variables held. Out: a ``Printer`` with the lines (see
``input_lines`` and ``host_lines``). What it cannot print is ``Undrivable``.
"""

from __future__ import annotations

from typing import Any

import torch

from autobatch.batching.ambient import ambient_key
from autobatch.batching.operations import Env, Scope
from autobatch.batching.stretches.host_lines import printed_host, printed_place
from autobatch.batching.stretches.input_lines import printed_input
from autobatch.batching.stretches.printer import Printer
from autobatch.compat import (
    any_autocast,
    deterministic,
    factory_device,
    flash_attention,
    lean_attention,
    may_derive,
    plain_attention,
)
from autobatch.values.cells import is_mutable

MODELESS = frozenset(("copy", "getattr", "global", "load_free", "tuple", "list", "unpack"))
"""Host operations that do the same in whatever mode torch is in."""


def printed_modes(printer: Printer) -> None:
    """The check of ``ambient_key``, question by question: that takes a third of the time."""
    if any_autocast():
        printer.check(f"ambient_key() != {printer.refer(ambient_key())}")
        return
    printer.check("any_autocast()")
    for question in (
        torch.is_grad_enabled,
        torch.is_inference_mode_enabled,
        torch.get_default_dtype,
        deterministic,
        may_derive,
        flash_attention,
        lean_attention,
        plain_attention,
    ):
        printer.check(f"{printer.refer(question)}() is not {printer.refer(question())}")
    # Each mode has a device object of its own.
    printer.check(f"{printer.refer(factory_device)}() != {printer.refer(factory_device())}")


def printed_plan(printer: Printer, skeleton: Any, scope: Scope, before: Env) -> None:
    """Checks, host operations and inputs: what needs no host operation is checked first."""
    made = {out for op in skeleton.host for out in op.outs}
    printer.given = frozenset(before) - made - set(skeleton.constants)
    if skeleton.batched or any(op.name not in MODELESS for op in skeleton.host):
        printed_modes(printer)
    early = [name for name in skeleton.reads if name in printer.given]
    parts = {name: printed_input(printer, skeleton, name) for name in early}
    printed_host(printer, skeleton, scope, before)
    seen: set[str] = set()
    for name in skeleton.reads:
        if name not in parts and is_mutable(printer.env[name].value):
            if printer.cell(name) in seen:
                continue  # a part of a container that is looked up again
            seen.add(printer.cell(name))
        inputs, whole = parts.get(name) or printed_input(printer, skeleton, name)
        printer.inputs += inputs
        printer.whole += whole
    for op in skeleton.stores:
        printed_place(printer, op)
