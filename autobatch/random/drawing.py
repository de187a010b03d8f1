"""torch's random operations, served from threads' own words (``laws``).

While a source is at work, a mode takes the operations that torch's generator would serve. For a
batch that is within a vmap level of its threads (``serving``, ``draws``), for one thread
everywhere (``drawing``); without a source, an operation that draws raises ``Drew``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from autobatch.compat import drawing_alike, is_default_generator
from autobatch.errors import Diagnostic, UnsupportedError
from autobatch.modes import DispatchMode
from autobatch.random import transforms
from autobatch.random.laws import BY_GENERATOR, RULES, UNNAMED, aten, by_generator, randperm
from autobatch.random.paths import Drew
from autobatch.random.sources import Source, Thread, Threads
from autobatch.source import Span

SOURCE: ContextVar[Source | None] = ContextVar("autobatch_source", default=None)
"""Where the operations of this host thread draw from; None for torch's own generator."""

SERVED: ContextVar[bool] = ContextVar("autobatch_served", default=False)
"""Whether a rule is at work, whose operations draw nothing, whatever batch it is within."""


class Drawing(DispatchMode):
    """Serves random operations from the source at work; without one they raise ``Drew``."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.permutations: list[Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if not is_random(func) or is_still(func, args, kwargs) or SERVED.get():
            return func(*args, **kwargs)
        source = SOURCE.get()
        if source is None:
            raise Drew
        names = [argument.name for argument in func._schema.arguments]
        if "generator" in names:
            place = names.index("generator")
            refuse_generator(kwargs.pop("generator", None) or next(iter(args[place:]), None))
            func, args = UNNAMED.get(func, func), args[:place]
        token = SERVED.set(True)
        try:
            return self.served(source, func, args, kwargs)
        finally:
            SERVED.reset(token)

    def served(self, source: Source, func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        """A random operation by its rule."""
        if func is aten.randperm.default and type(source) is Threads:
            return self.permutation(source, func, args, kwargs)
        rule = RULES.get(func)
        if rule is not None:
            return rule(source, func, args, kwargs)
        if func._can_decompose():  # under inference_mode it comes whole
            token = SERVED.set(False)
            try:
                with self:
                    return func.decompose(*args, **kwargs)
            finally:
                SERVED.reset(token)
        if func.overloadpacket in BY_GENERATOR:
            return by_generator(source, func, args, kwargs)
        raise UnsupportedError(
            Diagnostic(
                f"With a seed, a program cannot draw by {func.overloadpacket}.",
                None,
                "draws",
                ("nothing tells what a seed is to give it.",),
                ("draw by torch.rand and the like, or call without seed=.",),
                "seed-law",
            )
        )

    def permutation(self, source: Source, func: Any, args: Any, kwargs: Any) -> Tensor:
        """vmap asks for each thread's permutation by itself, in the order of the rows."""
        if not self.permutations:
            self.permutations = list(randperm(source, func, args, kwargs).unbind(0))[::-1]
        return self.permutations.pop()


@contextmanager
def drawing(source: Source | None) -> Iterator[None]:
    """Let random operations of this host thread draw from a source."""
    token = SOURCE.set(source)
    try:
        with Drawing():
            yield
    finally:
        SOURCE.reset(token)


def unasked(seed: int | None) -> AbstractContextManager[None]:
    """For a run: draws by a seed are what they are, whatever maps of torch's are around."""
    return nullcontext() if seed is None else drawing_alike()


def is_named(generator: Any) -> bool:
    """Whether a draw is not from torch's own generator."""
    return generator is not None and not is_default_generator(generator)


def refuse_generator(generator: Any, span: Span | None = None) -> None:
    """Refuse a draw that names a generator, which the seed of a call cannot be for."""
    if is_named(generator):
        raise UnsupportedError(
            Diagnostic(
                "With a seed, a program cannot draw from a generator of its own.",
                span,
                "draws from a generator",
                ("what that gives depends on which threads have drawn from it before.",),
                ("leave generator= out, or call without seed=.",),
                "seed-generator",
            )
        )


def draws(k: int) -> AbstractContextManager[Any]:
    """What serves the operations of a batch of ``k`` threads, if a source is at work for it."""
    source = SOURCE.get()
    return Drawing() if type(source) is Threads and source.k == k else nullcontext()


@contextmanager
def serving(source: Threads | None) -> Iterator[None]:
    """Let operations of a batch draw from a source; what fails has not drawn."""
    if source is None:
        yield
        return
    ledger = source.paths.ledger
    before = ledger.mark()
    token = SOURCE.set(source)
    try:
        yield
    except BaseException:
        ledger.rewind(before)
        raise
    finally:
        SOURCE.reset(token)


def direct(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """``torch.rand(size)`` and ``torch.randn(size)`` for a batch, ``[k, *size]``, without vmap.

    None for anything else, and where no source is at work.
    """
    source = SOURCE.get()
    if source is None or (function is not torch.rand and function is not torch.randn):
        return None
    size = args[0] if len(args) == 1 and isinstance(args[0], tuple | list) else args
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    known = kwargs.keys() <= {"dtype"} and dtype in (*transforms.BITS, torch.float64)
    if not known or not all(type(n) is int and n >= 0 for n in size):
        return None
    law = transforms.uniform if function is torch.rand else transforms.normal
    found = law(source, math.prod(size), dtype, torch.get_default_device())
    return found.view(source.k, *size)


def spare() -> AbstractContextManager[None]:
    """Words for what only tries an operation, if a source is at work."""
    return nullcontext() if SOURCE.get() is None else drawing(Thread(0, 0))


def is_random(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags and func.overloadpacket not in QUIET


QUIET = frozenset([aten._fused_sdp_choice])
"""Operations that torch takes for random, and are not."""


def is_still(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operation with dropout has none."""
    names = [argument.name for argument in func._schema.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if "dropout_p" in names:
        return not given.get("dropout_p", 0.0)
    return given.get("train") is False or given.get("training") is False
