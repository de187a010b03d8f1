"""The engine of a call, as its options want it, and what its chunks have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from autobatch.alone.within import Within
from autobatch.arguments.batch import Batch
from autobatch.batching.contributions import Contributions
from autobatch.batching.fallbacks import Policy
from autobatch.batching.stretches import Work, chosen
from autobatch.listeners import Tally
from autobatch.options import Options
from autobatch.presence.record import Record
from autobatch.saving.offload import Offload, Offloading
from autobatch.saving.savers import Saver
from autobatch.saving.segments import Tape
from autobatch.vm.library import Library
from autobatch.vm.observer import Observer
from autobatch.vm.program_counter import ProgramCounterMachine
from autobatch.vm.schedule import SCHEDULES, Schedule
from autobatch.vm.stackless import Machine
from autobatch.vm.state import RunState, Settings
from autobatch.vm.steps import Steps


@dataclass(slots=True, eq=False, repr=False)
class Shared:
    """What the chunks of one call have in common: steps, compiled stretches, onlookers.

    And what their threads write to tensors that all of them share, and what is known of gradients.
    """

    steps: Steps
    cache: dict[Any, Any] | None
    observer: Observer | None
    policy: Policy | None
    contributions: Contributions = field(default_factory=Contributions)
    record: Record = field(default_factory=Record)


def schedule_of(schedule: Any) -> Schedule | None:
    """The policy that an option names, or is; None for the queue's own order."""
    return SCHEDULES[schedule] if isinstance(schedule, str) else schedule


def machine_of(
    options: Options, library: Library, shared: Shared, device: torch.device, size: int
) -> Machine:
    """An engine for ``size`` threads whose numbers live on ``device``."""
    settings = Settings(
        device,
        size,
        options.draws,
        options.depth_limit,
        options.fork == "auto" and options.engine != "program_counter",
        options.max_width,
        schedule_of(options.schedule),
        options.on_error == "isolate",
        options.seed,
        options.thread_offset,
    )
    parts = size and options.lets_run_plainly and options.seed is None
    state = RunState(
        library,
        settings,
        shared.steps,
        work=work_of(options, shared.cache) if size else None,
        policy=shared.policy,
        observer=shared.observer,
        saver=saver_of(options, shared.steps.tally),
        contributions=shared.contributions,
        plainly=Within(library) if parts else None,
    )
    engine = ProgramCounterMachine if options.engine == "program_counter" else Machine
    return engine(state)


def work_of(options: Options, cache: dict[Any, Any] | None) -> Work | None:
    """What makes stretches fast; None where each operation runs as it comes."""
    named = options.executor_of_stretches
    if named == "vmap":
        return None
    executor = chosen(named, options.save == "keep", options.fast_math)
    patient = options.trace_after > 0 and named in ("traced", "auto")
    return Work(executor, options.trace_after, {} if cache is None else cache, patient)


def saver_of(options: Options, tally: Tally) -> Saver | None:
    """What sees to what a run saves for its backward; None: torch's own way."""
    if options.save == "recompute":
        return Tape(tally.again)
    plan = Offload() if options.save == "offload" else options.save
    return Offloading(plan, tally.moved) if isinstance(plan, Offload) else None


def steps_of(options: Options, batch: Batch) -> Steps:
    """``max_steps`` is of the call; where threads are isolated, each thread's own."""
    steps = Steps(batch.size, options.max_steps, options.listeners, Tally())
    if options.on_error == "isolate" and options.max_steps is not None and batch.size:
        steps.own = np.zeros(batch.size, dtype=np.int64)
    return steps
