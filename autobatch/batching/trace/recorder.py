"""Recording: run a function once on fake tensors and write down the operators that ran.

In: a function ``fn(k, *values)`` and what its inputs look like. Out: a ``Recording`` of the
operators below functorch and autograd, with the fake tensors that went in and came out.
A dispatch mode above ``FakeTensorMode`` does the writing. Against ``make_fx`` this patches
nothing in the process, keeps the grad mode of each operator, and costs a third.

Everything runs in a fresh host thread: functorch levels, dispatch and function modes, autocast,
grad and inference mode all belong to a host thread, so a fresh one is outside of them all. What
the caller's results depend on (``Ambient``) is entered again there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.function import BackwardCFunction

from autobatch.batching.trace.graph import Untraceable
from autobatch.compat import FALLBACK_OFF, may_derive, quiet
from autobatch.modes import DispatchMode

T = TypeVar("T")
_LOCK = threading.Lock()
_MOST_EVENTS = 5000
_EXAMPLES = 4
_DETACH = torch.ops.aten.detach.default
_SELECT = torch.ops.aten.select.int
_LITERALS = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default)


@dataclass(frozen=True, slots=True)
class Event:
    """One operator as it ran; ``sizes`` are its results' shapes and strides at that time."""

    op: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    grad: bool
    sizes: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Recording:
    """One run: fake tensors and Python numbers in, operators, fake tensors out."""

    inputs: tuple[Any, ...]
    events: tuple[Event, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Ambient:
    """The modes around the caller that decide what an operator computes.

    ``hides``: whether tensors may have derivatives that they do not tell of: those of a level of
    functorch's, tangents of forward mode.
    """

    grad: bool
    device: torch.device | None
    autocast: tuple[tuple[str, torch.dtype], ...]
    hides: bool = False

    @staticmethod
    def current() -> Ambient:
        """The modes of the calling host thread."""
        device = torch.get_default_device()
        kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
        return Ambient(
            grad=torch.is_grad_enabled(),
            device=None if device == torch.device("cpu") else device,
            autocast=tuple((kind, torch.get_autocast_dtype(kind)) for kind in kinds),
            hides=may_derive(),
        )

    @contextmanager
    def entered(self) -> Iterator[None]:
        """These modes, inside a fresh host thread."""
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self.grad))
            if self.device is not None:
                stack.enter_context(self.device)
            for kind, dtype in self.autocast:
                stack.enter_context(torch.autocast(kind, dtype, cache_enabled=False))
            yield


class _Worker(threading.Thread):
    """The host thread of one recording; ``hides`` is that of its ``Ambient``."""

    hides = False


def is_recording() -> bool:
    """Whether this host thread records: its tensors tell nothing of inference mode."""
    return isinstance(threading.current_thread(), _Worker)


def refuse_hidden(name: str) -> None:
    """Refuse to record what may define a derivative in Python, where no tensor would tell of it."""
    worker = threading.current_thread()
    if isinstance(worker, _Worker) and worker.hides:
        raise Untraceable(f"{name} may define a derivative in Python")


def outside(job: Callable[[], T]) -> T:
    """Run ``job`` in a fresh host thread, one at a time in the process, and return its result."""
    if is_recording():
        raise Untraceable("a recording inside a recording")
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            with FALLBACK_OFF, quiet():
                results.append(job())
        except BaseException as failure:  # the caller's thread raises it again
            failures.append(failure)

    with _LOCK:
        worker = _Worker(target=run, name="autobatch-trace")
        worker.start()
        worker.join()
    if failures:
        raise failures[0]
    return results[0]


class _Recorder(DispatchMode):
    """Writes down each operator that makes or changes a tensor.

    ``refusal`` is why the run cannot become a trace. It is raised at once, except from ``detach``
    and questions about a tensor (``prim.device``): autograd asks them where an exception would
    end the process.
    """

    def __init__(self, mode: FakeTensorMode, allow_random: bool, k: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.mode = mode
        self.k = k
        self.allow_random = allow_random
        self.events: list[Event] = []
        self.refusal: str | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":
            return func(*args, **kwargs)
        self.refusal = self.refusal or self.reason_against(func, (*args, *kwargs.values()))
        if func is _DETACH:
            args = (args[0] if isinstance(args[0], FakeTensor) else self.mode.from_tensor(args[0]),)
        elif self.refusal:
            raise Untraceable(self.refusal)
        grad = torch.is_grad_enabled()
        out = func(*args, **kwargs)
        checks = not func._schema.returns  # a check gives nothing, and may raise
        if checks or isinstance(out, (Tensor, tuple, list)) or func._schema.is_mutable:
            self.events.append(Event(func, args, kwargs, out, grad, _sizes(out)))
        return out

    def reason_against(self, func: Any, arguments: tuple[Any, ...]) -> str | None:
        """Why this operator cannot be in a trace."""
        if not isinstance(func, OpOverload):
            return f"{func} takes functions, which a trace cannot hold"
        if torch.Tag.nondeterministic_seeded in func.tags and not self.allow_random:
            return f"{func} draws random numbers"
        if len(self.events) == _MOST_EVENTS:
            return f"more than {_MOST_EVENTS} operators run"
        if func is _SELECT and _is_of_one_thread(arguments, self.k):
            return "torch goes through the threads, one after the other"
        if func not in _LITERALS and _holds_real(arguments):
            return f"{func} reads a tensor that is not among the inputs"
        return None


def _sizes(out: Any) -> tuple[Any, ...]:
    if isinstance(out, Tensor):
        return ((tuple(out.shape), out.stride()),)
    return tuple(_sizes(each) for each in out) if isinstance(out, (tuple, list)) else ()


def _holds_real(arguments: Sequence[Any]) -> bool:
    return any(
        _holds_real(argument)
        if isinstance(argument, (tuple, list))
        else isinstance(argument, Tensor) and not isinstance(argument, FakeTensor)
        for argument in arguments
    )


def _is_of_one_thread(arguments: Sequence[Any], k: int) -> bool:
    """Whether a thread is selected that is none of the first, which may stand for all.

    Some of torch's batching rules (of ``index_add``, ``take``) are loops over the threads: what
    they run would be known to depend on the thread count once two recordings were compared.
    """
    tensor, dim, index = arguments
    return bool(index >= _EXAMPLES and tensor.shape[dim] == k)


def run_fake(
    fn: Callable[..., Sequence[Tensor]],
    k: int,
    make_inputs: Callable[[], Sequence[Any]],
    mode: FakeTensorMode,
    ambient: Ambient,
    allow_random: bool,
) -> Recording:
    """Record one run of ``fn`` with ``k`` threads; call it inside ``outside``."""
    recorder = _Recorder(mode, allow_random, k)
    worker = threading.current_thread()
    if isinstance(worker, _Worker):
        worker.hides = ambient.hides
    with mode, ambient.entered():
        inputs = tuple(make_inputs())
        with recorder:
            outputs = tuple(fn(k, *inputs))
    if recorder.refusal:
        raise Untraceable(recorder.refusal)
    for output in outputs:
        if not isinstance(output, Tensor):
            raise Untraceable("a result is not a tensor")
        if not isinstance(output, FakeTensor):
            raise Untraceable("a result is a tensor that is not among the inputs")
    refuse_python_gradients(outputs)
    return Recording(inputs, tuple(recorder.events), outputs)


def refuse_python_gradients(outputs: Sequence[Tensor]) -> None:
    """A custom ``autograd.Function`` leaves only its forward in a trace, so there is none."""
    waiting = [out.grad_fn for out in outputs if out.grad_fn is not None]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if isinstance(node, BackwardCFunction):
            raise Untraceable(f"{type(node).__name__} defines a gradient in Python")
        fresh = {before for before, _ in node.next_functions if before is not None} - seen
        seen |= fresh
        waiting += fresh
