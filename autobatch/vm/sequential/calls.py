"""The calls of one thread: a lowered function in a frame, or plain Python.

In: what is called, on real operands. Out: the result; or what is to run in a frame of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import nn

from autobatch import errors
from autobatch.batching import semantics
from autobatch.batching.calling.resolving import resolve_object
from autobatch.batching.calling.seeding import for_one, row_by_row
from autobatch.batching.containers.callees import is_hashable
from autobatch.batching.generators import Generators, is_generator
from autobatch.batching.host.making import python_function
from autobatch.batching.kinds import generated_init
from autobatch.batching.objects.classes import is_plain_class
from autobatch.batching.objects.dispatching import dispatching_method
from autobatch.batching.semantics import arguments
from autobatch.ir.program import CallShape, Op
from autobatch.random.drawing import SOURCE
from autobatch.source import Span
from autobatch.transforms.mapping import draw_alike, loop_options, own_option
from autobatch.transforms.records import DIRECT, TORCH, Made, kind_of, made_of, transform_of
from autobatch.transforms.rounds import round_by_round
from autobatch.values.cells import Cell, Container, Uniform
from autobatch.vm.sequential.draws import alike, drawing_as, refusing, unopened
from autobatch.vm.sequential.frames import Callee, Closure, Lookup, receiver_of
from autobatch.vm.sequential.watching import Unwatched
from autobatch.vm.steps import Steps

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Run = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a call runs: a ``Callee``, or as plain Python; an ``__init__`` fills ``instance``.

    ``opens``: plain Python that draws from a path of its own where the call ends a block;
    ``is_chain``: an ``nn.Sequential``, whose modules are called in turn; ``transforms``: a function
    that runs in frames, too; ``entered``: a ``with`` statement enters what the call gives.
    """

    called: Any
    args: Args
    kwargs: Kwargs
    instance: Any = None
    opens: bool = False
    is_chain: bool = False
    transforms: bool = False
    entered: bool = False


@dataclass(slots=True, eq=False, repr=False)
class Calls:
    """``lookup`` gives a callee's lowering, None to run it as plain Python; ``watch`` refuses what
    that would write that existed before. ``run`` runs a lowered function in frames; it is given
    with each call, since an interpreter that it were kept for would be kept by it. A batch within
    the call takes of the ``steps`` of its ``threads``. ``draws`` is what draws
    mean, as in ``torch.vmap``: where that is an error, torch may draw nothing. ``generators`` are
    those that are to come to their end.
    """

    lookup: Lookup
    watch: Unwatched
    steps: Steps
    threads: tuple[int, ...]
    draws: str = "different"
    generators: Generators = field(default_factory=Generators)

    def call(self, run: Run, shape: CallShape, target: Any, operands: Args, span: Span) -> Any:
        """A call within a block."""
        return self.made(run, self.opened(shape, target, operands, span), span)

    def applied(self, op: Op, operands: Args) -> Any:
        """The result of an operation that is no call."""
        if op.name == "getattr":
            method = dispatching_method(operands[0], op.attr)
            if method is not None:
                return method
        result = semantics.apply(op.name, op.attr, operands)
        self.generators.see((result,), op.span)
        return result

    def resolved(self, shape: CallShape, target: Any, operands: Args, span: Span) -> Resolution:
        """What a call runs that ends its block; a refusal says where."""
        try:
            return self.opened(shape, target, operands, span)
        except errors.UnsupportedError as error:
            raise errors.placed(error, span) from None

    def opened(self, shape: CallShape, target: Any, operands: Args, span: Span) -> Resolution:
        """What a call runs once methods, partials and the like are opened."""
        if not shape.is_plain:
            self.watch.gone_through(operands)
        given, kwargs = arguments(shape, target, operands)
        args = tuple(given)
        receiver, function = receiver_of(target)
        if not is_generator(function):
            callee = Callee.find(function, self.watch.lookup(receiver) or self.lookup)
            if callee is not None:
                return Resolution(callee, (*receiver, *args), kwargs)
        opened = resolve_object(target, [], {})
        own = tuple(object_of(cell) for cell in opened.args)
        named = {name: object_of(cell) for name, cell in opened.kwargs.items()}
        lookup = self.watch.lookup(own) or self.lookup
        if opened.effect == "construct" and fills(opened.callee):
            callee = Callee.find(opened.callee.__init__, lookup)
            if callee is not None:
                instance = opened.callee.__new__(opened.callee)
                return Resolution(callee, (instance, *own, *args), {**named, **kwargs}, instance)
        if opened.effect == "program":
            callee = Callee.find(opened.callee, lookup)
            if callee is not None:
                return Resolution(callee, (*own, *args), {**named, **kwargs})
        if opened.effect == "generator":
            whole, by_name = (*own, *args), {**named, **kwargs}
            called = opened.callee
            if isinstance(called, Container):
                held = [object_of(cell) for cell in called.children()]
                called = python_function(called.static, held)
            self.watch.refuse_generator(called, whole, by_name)
            return Resolution(called, whole, by_name)
        if opened.effect == "chain" and len(args) == 1 and not kwargs:
            return Resolution(opened.callee, args, kwargs, is_chain=True)
        if is_hashable(target) and (made_of(target) or kind_of(target) in DIRECT):
            return Resolution(target, args, kwargs, transforms=True, entered=shape.entered)
        called = target if SOURCE.get() is None else for_one(target, kwargs, span)
        opens = opened.effect == "construct"
        return Resolution(called, args, kwargs, opens=opens, entered=shape.entered)

    def made(self, run: Run, found: Resolution, span: Span) -> Any:
        """The result of a call within a block."""
        if isinstance(found.called, Callee):
            return run(found.called, found.args, found.kwargs, found.instance)
        called, args = found.called, list(found.args)
        if self.draws == "error" and not found.is_chain:
            with refusing(called, args):
                return self.plainly(run, found, args, span)
        return self.plainly(run, found, args, span)

    def plainly(self, run: Run, found: Resolution, args: list[Any], span: Span) -> Any:
        """The result of plain Python, of the calls that a transform or a chain makes, or of it."""
        called = found.called
        if found.is_chain:
            called = partial(self.chained, run, called, span)
        elif found.transforms:
            called, *args = self.transforming(run, found, span)
        result = self.watch.plain(called, args, found.kwargs, span, found.entered)
        self.generators.see((result,), span)
        return result

    def made_apart(self, run: Run, found: Resolution, span: Span) -> Any:
        """The result of plain Python, of a call that ends its block."""
        source = SOURCE.get()
        if source is None or not found.opens:
            return self.made(run, found, span)
        SOURCE.set(source.opened())
        try:
            return self.made(run, found, span)
        finally:
            SOURCE.set(source)

    def chained(self, run: Run, modules: nn.Sequential, span: Span, item: Any) -> Any:
        """``nn.Sequential``'s forward."""
        for module in modules:
            item = self.call(run, CallShape((False,)), module, (item,), span)
        return item

    def transforming(self, run: Run, found: Resolution, span: Span) -> list[Any]:
        """A call of a transform, on a function that runs in frames; its arguments by place."""
        called, args = found.called, found.args
        if made_of(called) is not None:
            return [self.framed(run, called, span), *args]
        rounds = round_by_round(called)
        if rounds is not None:
            options = loop_options(called.__name__, args[0] if args else None, found.kwargs)
            if own_option(options, None) is not None:
                return [called, *args]
            called = partial(rounds, draw_alike(options["randomness"], self.draws))
        first = [self.framed(run, function, span) for function in args[:1]]
        return [called, *first, *args[1:]]

    def framed(self, run: Run, function: Any, span: Span) -> Any:
        """A function that Python calls, so that what it runs is of this thread.

        Under a seed no call within opens a path (see ``runs.unopened``).
        """
        made = made_of(function)
        if made is not None:
            return self.remade(run, made, span)
        if isinstance(function, Closure):
            return Closure(function.callee, unopened(function.run), function.made)
        if not callable(function):
            return function
        opened = resolve_object(function, [], {})
        own = tuple(object_of(cell) for cell in opened.args)
        callee = None
        if opened.effect == "program":
            callee = Callee.find(opened.callee, self.watch.lookup(own) or self.lookup)
        if callee is None:
            return function
        named = {name: object_of(cell) for name, cell in opened.kwargs.items()}
        closure = Closure(callee, unopened(run))
        return partial(closure, *own, **named) if own or named else closure

    def remade(self, run: Run, made: Made, span: Span) -> Any:
        """What a transform has made, of a function that runs in frames.

        Rows that ``torch.vmap`` maps may branch, and go one by one: torch has no way for them. A
        ``vmap`` of ours is a batch of its own, unless a seed says what its rows draw.
        """
        transform, source = made.transform, SOURCE.get()
        if transform.kind != "vmap":
            return partial(alike(transform), self.framed(run, made.function, span))
        options, ours = transform.options(), transform.make not in TORCH
        apart = ours and own_option(options, None) is not None
        if not (ours and (apart or source is None)):
            function = self.framed(run, made.function, span)
            if function is made.function and not isinstance(function, Closure) and source is None:
                return made.result  # no code of the user's runs
            same = draw_alike(options["randomness"], self.draws)
            return partial(row_by_row, replace(made, function=function), same)
        if not apart:
            given = drawing_as(options, self.draws)
            made = replace(made, transform=transform_of(transform.make, (), given))
        if self.steps.max_steps is None:
            return partial(made.transform, made.function)
        return partial(self.within, made, span)

    def within(self, made: Made, span: Span, *args: Any, **kwargs: Any) -> Any:
        """A batch within the call, whose steps count as the thread's."""
        left, transform = self.steps.left(self.threads), made.transform
        given = dict(transform.named)
        own = given.get("max_steps")
        if not left:
            raise self.steps.too_many(span, 1)
        limit = left if own is None else min(own, left)
        told = (*given.get("listeners", ()), partial(self.steps.taken_within, self.threads))
        given |= {"max_steps": limit, "listeners": told}
        mapped = transform.make(made.function, *transform.args, **given)
        try:
            return mapped(*args, **kwargs)
        except errors.StepLimitError:
            if limit == own:
                raise
            raise self.steps.too_many(span, 1) from None


def fills(kind: type) -> bool:
    """Whether building an instance is to run its ``__init__`` on an empty one."""
    return is_plain_class(kind) and not generated_init(kind)


def object_of(cell: Cell) -> Any:
    """What a call hands on by itself: a receiver, or a partial's arguments."""
    value = cell.value
    assert type(value) is Uniform
    return value.obj
