"""``execute``: a lowered program, run as it stands, on a batch of inputs.

In: a ``Program`` and one input per variable of ``program.in_vars`` (what the program's callable
is already bound to excepted). Out: a list in the order of ``program.out_vars``. What runs is the
program, changed or written by hand as it may be. Callees are found by identity when they are
called, as always; one that the program has runs as it has it. Where no Python function belongs to
the program, global names mean its functions.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import numpy as np
from torch import Tensor

from autobatch.api import LIBRARY
from autobatch.arguments.batch import Batch
from autobatch.arguments.batch_size import tensor_of
from autobatch.arguments.in_dims import is_numbers, numbers_of
from autobatch.arguments.mapped import Mapped, objects
from autobatch.batching.calling.resolving import resolve_object
from autobatch.batching.replaced import NOTHING, look
from autobatch.compiled import Plans
from autobatch.errors import (
    AutobatchError,
    Diagnostic,
    OptionError,
    StackingError,
    UnknownOptionError,
)
from autobatch.frontend import MISSING
from autobatch.ir.form_rules import shapes_fit
from autobatch.ir.links import meant
from autobatch.ir.printer import sizes
from autobatch.ir.program import EventShape, Function, Param, Program
from autobatch.ir.verifier import check
from autobatch.modes import uncompiled
from autobatch.options import Options
from autobatch.passes import annotate_liveness, apply_pass
from autobatch.results.memory import of_its_own
from autobatch.results.stacking import plain
from autobatch.runs.entry import is_calling
from autobatch.runs.running import run
from autobatch.structure import form_of
from autobatch.values.cells import is_number
from autobatch.vm.code import Code
from autobatch.vm.library import Library


@uncompiled
def execute(
    program: Program,
    *inputs: Any,
    block_code_cache: dict[Any, Any] | None = None,
    **options: Any,
) -> list[Any]:
    """Run a program for a batch; the leaves of its result in the order of ``program.out_vars``.

    Args:
        program: what ``lower`` gives, or one made by hand.
        *inputs: one for each of ``program.in_vars`` (without those that a bound method or a
            ``partial`` has filled): a tensor or array ``[B, *E]``, a list of B numbers, or
            ``objects(...)``; all of one B, each E as ``program.in_shapes`` declares it, where
            it does. ``*args`` takes what is left, keyword-only
            parameters come last, ``**kwargs`` stays empty.
        block_code_cache: keeps recorded and compiled stretches, and machine code, from one call to
            the next; by default each call has a fresh one.
        **options: see ``Options``; ``in_dims`` and ``out_dims`` have no meaning here,
            and ``on_error`` is ``"raise"``.

    Returns:
        A list with one entry for each name of ``out_vars``: a tensor ``[B, *E]`` where the
        leaf stacks, else a list of B. A program whose result has one name gives one entry.

    Raises:
        OptionError: an input, named, that is missing, of no use, or of another batch size or
            event shape than the program declares.
        VerifierError: the program breaks a rule.
    """
    settings = settings_of(options)
    if not isinstance(program, Program):
        raise OptionError(
            f"program is {program!r}, which is no Program; autobatch.lower(func) makes one."
        )
    if block_code_cache is not None and not isinstance(block_code_cache, dict):
        raise OptionError(f"block_code_cache is {block_code_cache!r}; it must be a dict or None.")
    entry = Entry.of(program)
    batch = batch_of(program, entry, inputs)
    cache = {} if block_code_cache is None else block_code_cache
    replaced = look()
    if replaced is not NOTHING:
        cache = cache.setdefault(("replaced", replaced), {})
    library = ProgramLibrary(
        functions=program.functions, cache=cache, writes=settings.writes, replaced=replaced
    )
    library.note(entry.function, entry.main, entry.has_defaults)
    for function, record in entry.others:
        library.note(function, record, has_defaults=False)
    result = of_its_own(run(entry.called, batch, settings, library, cache=cache), batch)
    return [plain(leaf) for leaf in ordered(result, program.out_vars)]


def settings_of(options: dict[str, Any]) -> Options:
    for name in ("in_dims", "out_dims"):
        if name in options:
            raise UnknownOptionError(f"execute has no option {name!r}: dimension 0 is the batch.")
    if "passes" in options:
        raise UnknownOptionError(
            "execute has no option 'passes': a program runs as it stands; autobatch.lower has it."
        )
    settings = Options().updated(options)
    if settings.on_error != "raise":
        raise OptionError(
            f"on_error is {settings.on_error!r}; execute gives the leaves of one result, so it "
            "must be 'raise'."
        )
    return settings.updated({"plain": "never"})  # plain Python would run what it is lowered from


# The program as something to call.


@dataclass(frozen=True, slots=True)
class Entry:
    """``called`` is what a run calls; it ends in ``function``, whose lowering is ``main``.

    ``others`` are stand-ins for all of the program's functions, and what they run, where no Python
    function belongs to it.
    """

    called: Callable[..., Any]
    function: FunctionType
    main: Function
    bound: int = 0
    named: frozenset[str] = frozenset()
    has_defaults: bool = True
    others: Sequence[tuple[FunctionType, Function]] = ()

    @classmethod
    def of(cls, program: Program) -> Entry:
        main = program.main
        if not main.live_in:  # made by hand: no pass has looked at it
            check(program, "building")
        if isinstance(program.callable, FunctionType) and is_calling(program.callable):
            return cls(program.callable, program.callable, main)
        target = resolve_object(program.callable, [], {})
        function, bound = target.callee, len(target.args)
        if target.effect == "construct":
            function, bound = target.callee.__init__, 1
        if target.effect not in ("program", "construct") or not isinstance(function, FunctionType):
            return cls.by_name(program)
        missing = set(main.free) - set(function.__code__.co_freevars)
        if missing:
            raise OptionError(
                f"The program {program.entry} reads captured variables that its callable "
                f"{function.__qualname__} does not have: {', '.join(sorted(missing))}."
            )
        return cls(program.callable, function, main, bound, frozenset(target.kwargs))

    @classmethod
    def by_name(cls, program: Program) -> Entry:
        """Of a program that no Python function belongs to: names mean what it has by them."""
        if program.main.free:
            raise OptionError(
                f"The program {program.entry} reads captured variables "
                f"({', '.join(program.main.free)}), but its callable is no Python function that "
                "has them."
            )
        namespace: dict[str, Any] = {"__builtins__": builtins, "__name__": "<program>"}
        plain = [each for each in program.functions.values() if not each.free]
        others = [(stand_in(each, namespace), each) for each in plain]
        namespace.update((each.name, function) for function, each in others)
        stub = namespace[program.main.name]
        return cls(stub, stub, program.main, has_defaults=False, others=others)

    def open_params(self) -> list[Param]:
        """The parameters that inputs are for."""
        return [param for param in self.main.params[self.bound :] if param.name not in self.named]


def stand_in(function: Function, namespace: dict[str, Any]) -> FunctionType:
    """A Python function to run one of a program's by that no Python function belongs to."""

    def program(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a program runs by its lowering")

    code = program.__code__.replace(co_name=function.name, co_qualname=function.name)
    return FunctionType(code, namespace, function.name)


def without_defaults(function: Function) -> Function:
    """The same, of which every parameter has to be given: no Python function has the defaults."""
    if not any(param.has_default for param in function.params):
        return function
    params = tuple(replace(param, has_default=False) for param in function.params)
    return replace(function, params=params)


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class ProgramLibrary(Library):
    """The process's library, but for the functions of a program, which run as it has them.

    ``cache`` keeps their machine code.
    """

    functions: Mapping[str, Function]
    cache: dict[Any, Any]

    def note(self, function: FunctionType, record: Function, has_defaults: bool = True) -> Code:
        """Have a Python function run as a record says."""
        lively = record if record.live_in else apply_pass(annotate_liveness, record)
        made = lively if has_defaults else without_defaults(lively)
        code = self.codes[key_of(function)] = self.made(made)
        # Its own, by identity, which is its as long as it is kept.
        _, code.plans = self.cache.setdefault(("machine code", id(record)), (record, Plans()))
        return code

    def code_of(self, function: FunctionType, receiver: object = MISSING) -> Code:
        code = self.codes.get(key_of(function))
        if code is not None:
            return code
        record = self.record_of(function)
        others = LIBRARY.under(None, self.writes)
        if record is None:
            return others.code_of(function, receiver)
        with suppress(AutobatchError):  # it may have a record and yet no source
            code = others.code_of(function, receiver)
        if code is None or code.function != record:
            return self.note(function, record)
        return code

    def record_of(self, function: FunctionType) -> Function | None:
        """What the program has of a Python function; None if it has none of it."""
        record = None if is_calling(function) else meant(self.functions, function)
        return None if record is None or record.yields is not None else record


def key_of(function: FunctionType) -> tuple[object, ...]:
    return function.__code__.co_filename, function.__code__


# Inputs and outputs.


def batch_of(program: Program, entry: Entry, inputs: Sequence[Any]) -> Batch:
    """The inputs as the arguments of a batched call."""
    places = places_of(entry, len(inputs))
    names = ", ".join(name for name, _ in places) or "none"
    if len(inputs) > len(places):
        raise OptionError(
            f"execute got {len(inputs)} inputs for {program.entry}, whose inputs are: {names}."
        )
    for name, param in places[len(inputs) :]:
        if not (param.has_default and entry.has_defaults):
            raise OptionError(f"execute got no input for {name} of {program.entry}({names}).")
    for fault in shapes_fit(program):
        raise OptionError(f"The program {program.entry} is not valid: {fault}.")
    args: list[Mapped] = []
    kwargs: dict[str, Mapped] = {}
    sizes: dict[str, int] = {}
    for (name, param), value in zip(places, inputs, strict=False):
        leaf = mapped(name, value, program.in_shapes.get(param.name))
        sizes[name] = len(leaf)
        if param.kind == "keyword_only":
            kwargs[name] = leaf
        else:
            args.append(leaf)
    return Batch(tuple(args), kwargs, one_size(sizes, program.entry))


def places_of(entry: Entry, count: int) -> list[tuple[str, Param]]:
    """A name and a parameter for each input; ``*args`` has as many as the others leave."""
    params = [param for param in entry.open_params() if param.kind != "var_keyword"]
    places: list[tuple[str, Param]] = []
    for param in params:
        if param.kind == "var_positional":
            extra = range(count - len(params) + 1)
            places += [(f"{param.name}[{index}]", param) for index in extra]
        else:
            places.append((param.name, param))
    return places


def mapped(name: str, value: Any, shape: EventShape | None) -> Mapped:
    """An input with its batch dimension; ``shape`` is the event shape that is declared for it."""
    if is_numbers(value):
        value = numbers_of(value)
    if isinstance(value, objects):
        for index, item in enumerate(value.items if shape is not None else ()):
            held(f"The object {index} of the input {name}", event_shape(item), shape)
        return Mapped(value.items)
    if isinstance(value, np.ndarray):
        value = tensor_of(value, lambda: f"The input {name}")
    if not isinstance(value, Tensor):
        raise OptionError(
            f"The input {name} is of type {type(value).__name__}; it must be a tensor or an array "
            "[B, *E], a list of numbers, or autobatch.objects(...)."
        )
    if not value.shape:
        raise OptionError(f"The input {name} is a 0-d tensor; its dimension 0 must be the batch.")
    held(f"The input {name}", value.shape[1:], shape)
    return Mapped(value)


def event_shape(item: Any) -> Sequence[int] | None:
    """The shape of one thread's object, None if it has none."""
    if isinstance(item, Tensor | np.ndarray):
        return item.shape
    return () if is_number(item) else None


def held(what: str, found: Sequence[int] | None, declared: EventShape | None) -> None:
    """Hold an input's event shape to what the program declares for it."""
    if declared is None:
        return
    if found is None:
        has = "has no shape"
    else:
        pairs = zip(found, declared, strict=False)
        if len(found) == len(declared) and all(d is None or f == d for f, d in pairs):
            return
        has = f"has the event shape {sizes(tuple(found))}"
    raise OptionError(f"{what} {has}, but the program declares {sizes(declared)} for each example.")


def one_size(sizes: Mapping[str, int], title: str) -> int:
    if not sizes:
        raise OptionError(f"execute got no inputs for {title}: at least one gives the batch size.")
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise OptionError(f"The inputs of {title} have different batch sizes: {listed}.")
    return next(iter(sizes.values()))


def ordered(result: Any, names: Sequence[str]) -> list[Any]:
    """The leaves of a stacked result that the names stand for."""
    found = dict(leaves(result, "out", frozenset(names)))
    missing = [name for name in names if name not in found]
    if missing:
        raise StackingError(
            Diagnostic(
                f"The program's result has no {', '.join(missing)}.",
                notes=(f"its out_vars are {', '.join(names)}.",),
                hints=("`out` is the whole result, `out.0` and `out.name` are parts of it.",),
                code="out-vars",
            )
        )
    return [found[name] for name in names]


def leaves(part: Any, name: str, wanted: frozenset[str]) -> Iterator[tuple[str, Any]]:
    if name in wanted:
        yield name, part
        return
    form = form_of(part)
    for key, inner in zip(form.keys, form.parts(part), strict=True) if form is not None else ():
        yield from leaves(inner, f"{name}.{key}", wanted)
