"""The options of a batched call: their values, defaults and checks."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from autobatch.arguments.spelling import meant
from autobatch.errors import OptionError, UnknownOptionError
from autobatch.passes import Pass, chosen_passes
from autobatch.ragged import FORMS
from autobatch.saving.offload import Offload
from autobatch.structure import leaves

CHOICES = {
    "engine": ("stackless", "program_counter", "sequential"),
    "executor": ("auto", "traced", "vmap", "compiled", "cudagraph"),
    "scalars": ("tensor", "python"),
    "fallback": ("allow", "warn", "error"),
    "randomness": ("error", "different", "same"),
    "fork": ("auto", "off"),
    "schedule": ("earliest", "most_threads"),
    "on_error": ("raise", "isolate"),
    "save": ("keep", "recompute", "offload"),
    "stateful": ("refuse", "sequential"),
    "plain": ("auto", "never"),
}

ALSO = {
    "executor": ("or an executor object, which has a method `compile`",),
    "schedule": ("or a callable",),
    "save": ("or autobatch.Offload(...)",),
}
"""What an option may be but for its ``CHOICES``."""

COUNTS = (
    "max_steps",
    "max_depth",
    "trace_after",
    "chunk_size",
    "max_width",
    "seed",
    "thread_offset",
)


class Unsaid(str):
    """The value of an option that nobody has said: another option may imply another one."""

    __slots__ = ()


UNSAID = Unsaid("error")
UNSAID_EXECUTOR = Unsaid("auto")
VARIABLE = "AUTOBATCH_EXECUTOR"


def executor_of_process() -> str:
    """The executor of what says none, which the environment may name; ``OptionError``."""
    found = os.environ.get(VARIABLE, UNSAID_EXECUTOR)
    if found not in CHOICES["executor"]:
        allowed = ", ".join(map(repr, CHOICES["executor"]))
        raise OptionError(f"{VARIABLE} is {found!r}; it must be one of {allowed}.")
    return found


EXECUTOR = executor_of_process()
MOST_THREADS = 2**47
TRACE_AFTER = 2
MAX_DEPTH = 10_000
"""How deep calls nest by default where each takes a part of Python's stack."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a batched call runs.

    ``engine``: ``"stackless"``; ``"program_counter"``, under which threads run together at any
    depth of calls; or ``"sequential"``, which runs the lowered program one thread at a time; a
    step is then a block execution of one thread. ``executor``: ``"traced"`` records hot stretches
    and replays them, ``"vmap"`` runs each operation as it comes, ``"compiled"`` makes machine code
    of programs of numbers and small tensors; of all others it compiles hot stretches, and replays
    what has no compiled form (``explain`` says why). ``"auto"``, the default, is the same where it
    pays: machine code after the first calls of few threads, or with tensors, and a stretch once
    what that may spare of its replays has taken as long as compiling does, kept so only where that
    is measured to be faster. As that goes by the clock, no stretch is compiled
    under a ``seed`` or ``torch.use_deterministic_algorithms(True)``. ``"cudagraph"`` captures them
    on a CUDA device, for numbers of threads padded to powers of two, and replays what cannot be
    captured (``explain`` says why). The environment variable ``AUTOBATCH_EXECUTOR`` names another
    default. ``scalars``: whether rows of a ``[B]`` argument are 0-d tensors or Python numbers.
    ``max_steps`` bounds the block executions of the call; in a stream, and under
    ``on_error="isolate"``, those that each thread takes part in, so that it stops one that does not
    end and no other. ``max_depth`` bounds the nesting
    of calls (None is 10,000, and no limit under ``"program_counter"``). ``fork``: whether calls of
    pure functions that do not need each other's results run as one (``"auto"``), at most
    ``max_width`` rows at once (None for no limit), or one after the other (``"off"``, and under any
    engine but ``"stackless"``). ``fallback``: whether
    operations may run thread by thread, see below. ``trace_after``: executions of a stretch before
    it is first recorded; every recording doubles how often its next signature must be met, up to
    sixteen times ``trace_after``, and past four event shapes 32 times; the first in a process waits
    until torch's tracing is worth loading, and each until 100 operations have run there, unless
    ``trace_after`` is 0. ``schedule``: which
    of the waiting blocks runs next, the ``"earliest"`` in the program, the one with
    ``"most_threads"`` (before all, one that needs no host read), or what a callable picks, which
    gets a list of ``autobatch.WaitingBlock`` and gives an index; results do not depend on it.
    ``listeners`` receive a ``Step`` per block execution. ``in_dims``, ``out_dims``, ``randomness``
    and ``chunk_size`` are those of ``torch.vmap``.

    ``seed``: an int, by which each thread draws numbers of its own, the same in every run (see
    ``autobatch.random``); it implies ``randomness="different"``. ``thread_offset`` is added to the
    threads' indices there: with ``thread_offset=i``, the first example draws what example ``i``
    of the whole input does.

    ``passes`` run instead of the pipeline, ``autobatch.passes.PIPELINE``: names of passes, and
    callables that take and give an ``autobatch.ir.program.Function``; what they give is verified.

    ``fast_math``: recordings may compute what is equal only in exact arithmetic (``x + 0`` as
    ``x``, though -0.0 + 0 is 0.0; ``x / 3`` as ``x * (1 / 3)``); the table is in
    ``batching.trace.arithmetic``. All executors but ``"vmap"`` make use of it.

    ``on_error``: ``"raise"`` raises what the plain loop raises. ``"isolate"``: the threads that
    fail leave, all others finish, and the result is a list of B ``Result``, with what each thread
    has returned or raised, unstacked; a stream yields such results. The errors of ``max_steps`` and
    ``max_depth`` are those of the threads that run into them; what autobatch refuses is raised all
    the same.

    ``ragged_out``: how tensors that have lengths of their own in each thread come back: as a
    ``"nested"`` tensor (jagged), a ``"list"`` of B tensors, or ``"pad"``, a pair of a tensor
    ``[B, T, *E]`` with zeros behind each thread's rows and the lengths ``[B]``. It goes for every
    tensor of the result that has a first dimension, whether the lengths happen to be equal or not,
    and for every Python list: under ``"list"`` each example has its own list, with the Python
    values that the loop gives (``[[0, 1], [2]]``), under the others lists of numbers, or of lists
    or tuples of as many numbers, are tensors of their numbers, int64, float64 or bool. Nested like
    the result it says so part by part (``("pad", None)``). None: they must stack.

    ``save``: what is there between a call and its backward. ``"keep"``: all that torch saves.
    ``"recompute"``: what recorded stretches save is computed once more, in segments of about the
    square root of the number of steps; gradients are the same, bit by bit. ``"offload"``: what they
    save on a CUDA device goes to the host once a run has saved 1 GiB, tensors of 1 MiB or more, and
    comes back as the backward goes on; ``autobatch.Offload(after, least)`` says other sizes. Under
    both, what runs by itself, or within a functorch transform, is kept, and tensors that the call
    has read must not be changed in place before the backward. The sequential engine keeps
    everything.

    ``stateful``: writes to what existed before the call (globals, captured variables, modules,
    arguments that all threads share, the items of ``objects(...)``). ``"refuse"``: they are errors.
    ``"sequential"``: the threads run one after the other, in order, whatever the engine, and write
    the real objects as the plain loop does: running statistics, lists that grow, a counter. Rows of
    mapped tensors are private copies all the same. Assignment to ``global`` names stays
    refused, as that to ``nonlocal`` ones of functions around the program.

    ``plain``: ``"auto"`` runs a program of Python objects alone (strings, dicts, trees: no tensor
    can come near it, and nobody else sees what it does) as plain Python, one thread after the
    other, which is what it takes least time as; so the first three calls of other programs with up
    to 64 threads, if nobody sees that, and a quarter of a second suffices: no recording would be
    done sooner. ``"never"`` keeps threads together; so do ``max_steps``, ``max_depth``,
    ``listeners``, ``passes``, ``explain``, ``fallback="error"`` and the executors ``"vmap"``,
    ``"cudagraph"`` and the user's own, and first calls ``counts()``, ``fallback="warn"``,
    ``executor="compiled"``, another ``trace_after`` and
    ``torch.use_deterministic_algorithms(True)``.

    What has no batched form runs thread by thread on the host. ``fallback="warn"`` runs what
    ``"allow"`` runs, and warns of it with a ``FallbackWarning`` at the program's line, once for
    each place and call, as the call ends (five places at most, where most examples ran so first);
    ``"error"`` raises a ``FallbackError`` there, before the operation runs: it says of any batch
    whether all has a batched form, so it keeps threads together where ``"allow"`` has plain Python
    run few of them. Neither minds what a program evidently means: functions marked ``per_thread``;
    ``print``; reading Python objects such as the rows of ``objects(...)`` (attributes, items,
    length, iteration, identity, type) and pure operations on nothing but such objects; making
    strings; and what leads up to a ``raise`` within its block. ``explain`` and ``counts`` show all
    of it. ``"warn"`` also tells of runs that are likely slower than the plain loop, as many block
    executions have few threads each (see ``overhead``). The sequential engine, which batches
    nothing, takes no notice of the option.
    """

    engine: str = "stackless"
    executor: Any = UNSAID_EXECUTOR
    scalars: str = "tensor"
    max_steps: int | None = None
    max_depth: int | None = None
    fallback: str = "allow"
    trace_after: int = TRACE_AFTER
    listeners: tuple[Callable[..., None], ...] = ()
    in_dims: Any = None
    out_dims: Any = 0
    randomness: str = UNSAID
    chunk_size: int | None = None
    fork: str = "auto"
    max_width: int | None = 100_000
    schedule: Any = "earliest"
    on_error: str = "raise"
    ragged_out: Any = None
    seed: int | None = None
    thread_offset: int = 0
    passes: tuple[Pass, ...] | None = None
    save: Any = "keep"
    stateful: str = "refuse"
    fast_math: bool = False
    plain: str = "auto"

    @property
    def is_one_by_one(self) -> bool:
        """Whether threads run one after the other, by the definitional interpreter."""
        return self.engine == "sequential" or self.writes

    @property
    def executor_at_work(self) -> Any:
        """The executor of a call: that of the process where none is said.

        "auto" is "traced" where an option is for recordings alone.
        """
        executor = self.executor
        if executor != "auto":
            return executor
        if self.save != "keep":
            return "traced"
        return EXECUTOR if type(executor) is Unsaid else executor

    @property
    def compiles(self) -> bool:
        """Whether programs may become machine code."""
        return self.executor_at_work in ("compiled", "auto")

    @property
    def executor_of_stretches(self) -> Any:
        """The executor of what is no machine code.

        When a kernel is made goes by the clock under "auto", and it rounds otherwise: what is to
        come out the same in every run has none.
        """
        executor = self.executor_at_work
        repeats = self.seed is not None or torch.are_deterministic_algorithms_enabled()
        return "traced" if executor == "auto" and repeats else executor

    @property
    def writes(self) -> bool:
        """Whether threads may write what existed before the call, as in the plain loop."""
        return self.stateful == "sequential"

    @property
    def draws(self) -> str:
        """What draws mean, as ``torch.vmap`` has it."""
        implied = self.seed is not None and type(self.randomness) is Unsaid
        return "different" if implied else str(self.randomness)

    @property
    def said(self) -> dict[str, Any]:
        """Those that are not the defaults, by name."""
        found = {name: getattr(self, name) for name in NAMES}
        return {name: value for name, value in found.items() if not is_default(name, value)}

    @property
    def lets_run_plainly(self) -> bool:
        """Whether plain Python may run threads: nobody looks at steps, or asks for another way."""
        return (
            self.executor_at_work in ("traced", "auto", "compiled")
            and self.plain == "auto"
            and self.fallback != "error"
            and self.max_steps is None
            and self.max_depth is None
            and not self.listeners
            and self.passes is None
            and not self.writes
        )

    @property
    def may_begin_plainly(self) -> bool:
        """Whether first calls may run as plain Python: nobody asks for what is recorded."""
        return (
            self.fallback == "allow"
            and self.trace_after == TRACE_AFTER
            and self.executor_at_work != "compiled"
        )

    @property
    def is_plain(self) -> bool:
        """Whether a call is one batch that nobody looks at, and raises what the loop raises."""
        return (
            self.engine == "stackless"
            and self.executor_at_work != "vmap"
            and self.max_steps is None
            and not self.listeners
            and self.chunk_size is None
            and self.schedule == "earliest"
            and self.on_error == "raise"
            and self.seed is None
            and self.save == "keep"
        )

    @property
    def depth_limit(self) -> int | None:
        """How deep calls may nest; None where only memory bounds it."""
        if self.max_depth is None and self.engine != "program_counter":
            return MAX_DEPTH
        return self.max_depth

    def updated(self, given: dict[str, Any], beside: Sequence[str] = ()) -> Options:
        """These options with some replaced; ``OptionError`` names what is wrong.

        ``beside`` are other arguments by name, one of which may have been meant.
        """
        for name in given:
            if name not in NAMES:
                told = meant(name, (*NAMES, *beside), "the options are")
                raise UnknownOptionError(f"There is no option {name!r}; {told}")
        if "listeners" in given:
            given = {**given, "listeners": as_listeners(given["listeners"])}
        if given.get("passes") is not None:
            given = {**given, "passes": as_passes(given["passes"])}
        given = {
            name: as_count(value) if name in COUNTS else value for name, value in given.items()
        }
        new = replace(self, **given)
        new.check()
        return new

    def check(self) -> None:
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if (
                name == "executor"
                and not isinstance(value, str)
                and callable(getattr(value, "compile", None))
            ):
                continue
            if name == "schedule" and callable(value):
                continue
            if name == "save" and isinstance(value, Offload):
                continue
            if not (isinstance(value, str) and value in choices):  # an array compares item by item
                allowed = ", ".join([*map(repr, choices), *ALSO.get(name, ())])
                raise OptionError(f"{name} is {value!r}; it must be one of {allowed}.")
        for name in ("in_dims", "out_dims"):
            check_dims(name, getattr(self, name))
        for name in ("max_steps", "max_depth", "chunk_size", "max_width"):
            check_count(name, getattr(self, name), 1, optional=True)
        check_count("trace_after", self.trace_after, 0, optional=False)
        check_seed(self)
        check_ragged(self.ragged_out)
        if self.ragged_out is not None and (self.out_dims != 0 or self.on_error == "isolate"):
            raise OptionError(
                f"ragged_out is {self.ragged_out!r}; it does not go with out_dims or "
                'on_error="isolate", which say themselves how results come back.'
            )
        if type(self.fast_math) is not bool:
            raise OptionError(f"fast_math is {self.fast_math!r}; it must be True or False.")
        if isinstance(self.save, Offload):
            check_count("after, of save,", self.save.after, 0, optional=False)
            check_count("least, of save,", self.save.least, 1, optional=False)
        if self.save != "keep" and self.executor not in ("traced", "auto"):
            raise OptionError(
                f"save is {self.save!r} and executor is {self.executor!r}; it is for what is "
                'recorded, so executor must be "traced", or "auto".'
            )
        if self.on_error == "isolate" and self.out_dims != 0:
            raise OptionError(
                f'out_dims is {self.out_dims!r}; on_error="isolate" gives a list of results, '
                "which has no dimensions."
            )

    @property
    def gives_own(self) -> bool:
        """Whether parts of results are each example's own Python values, whatever their types."""
        lists = self.ragged_out is not None and "list" in leaves(self.ragged_out)
        return lists or self.on_error == "isolate"


NAMES = tuple(field.name for field in fields(Options))
DEFAULTS = {field.name: field.default for field in fields(Options)}


def is_default(name: str, value: Any) -> bool:
    """By value, since copies and pickles make other objects; what is unsaid is of its own type."""
    default = DEFAULTS[name]
    return type(value) is type(default) and bool(value == default)


def own_options(func: Any) -> dict[str, Any]:
    """The options of a function that ``autobatch.function`` has decorated, as ``vmap`` takes them:
    but for the dimensions of its batch.
    """
    decorated = hasattr(type(func), "__autobatch_function__")  # which no wrapper takes on
    said = func.options.said if decorated else {}
    return {name: value for name, value in said.items() if name not in ("in_dims", "out_dims")}


def check_seed(options: Options) -> None:
    """A seed, and what has no meaning with it or without it."""
    seed, offset = options.seed, options.thread_offset
    if seed is not None and (type(seed) is not int or not -(2**63) <= seed < 2**64):
        raise OptionError(f"seed is {seed!r}; it must be an int of 64 bits or None.")
    if seed is not None and options.draws != "different":
        raise OptionError(
            f"seed is {seed!r} and randomness is {options.randomness!r}; with a seed every example "
            'draws numbers of its own, so randomness must be "different" or left out.'
        )
    check_count("thread_offset", offset, 0, optional=False)
    if offset and seed is None:
        raise OptionError(
            f"thread_offset is {offset!r}, but there is no seed; without one, draws are not a "
            "function of an example's index."
        )
    if offset >= MOST_THREADS:
        raise OptionError(f"thread_offset is {offset!r}; it must be below 2**47.")


def as_count(value: Any) -> Any:
    """An int of numpy's, which is what is computed from an array's sizes, as Python's."""
    return int(value) if isinstance(value, np.integer) else value


def check_count(name: str, value: Any, least: int, optional: bool) -> None:
    if optional and value is None:
        return
    if type(value) is not int or value < least:
        none = " or None" if optional else ""
        raise OptionError(f"{name} is {value!r}; it must be an int of at least {least}{none}.")


def check_dims(name: str, value: Any) -> None:
    """Dimensions are ints or None, nested like the arguments or results."""
    for leaf in leaves(value):
        if leaf is not None and type(leaf) is not int:
            held, told = repr(leaf), ""
            if isinstance(leaf, Tensor):
                held = "a tensor"
                told = " Arguments go to what vmap gives: autobatch.vmap(f)(x)."
            raise OptionError(
                f"{name} holds {held}; a dimension is an int, or None for what is not mapped.{told}"
            )


def check_ragged(value: Any) -> None:
    """None or one of the forms, nested like the results."""
    for form in leaves(value):
        if form is not None and not (isinstance(form, str) and form in FORMS):
            allowed = ", ".join(map(repr, FORMS))
            raise OptionError(f"ragged_out has {form!r}; it must be None or one of {allowed}.")


def as_listeners(value: Any) -> tuple[Callable[..., None], ...]:
    if not callable(value) and not isinstance(value, tuple | list):
        raise OptionError(f"listeners is {value!r}; it must be a callable or several in a tuple.")
    listeners = (value,) if callable(value) else tuple(value)
    for listener in listeners:
        if not callable(listener):
            raise OptionError(f"listeners has {listener!r}, which cannot be called.")
    return listeners


def as_passes(value: Any) -> tuple[Pass, ...]:
    if not isinstance(value, tuple | list):
        raise OptionError(f"passes is {value!r}; it must be a list of passes or of their names.")
    return chosen_passes(value)
