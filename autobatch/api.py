"""The public face: ``function``, ``vmap``, ``per_thread``, ``primitive``, ``lower``."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from autobatch.arguments.batch import Batch
from autobatch.arguments.in_dims import mapped_by_dims, mapped_by_kind
from autobatch.arguments.misfits import misfit, noted, noted_of_one
from autobatch.errors import OptionError
from autobatch.ir.call_types import CallTypes, with_types
from autobatch.ir.form_rules import shapes_fit
from autobatch.ir.program import Program
from autobatch.modes import uncompiled
from autobatch.options import UNSAID, Options, as_passes, own_options
from autobatch.passes import Pass
from autobatch.results.memory import of_its_own
from autobatch.results.stacking import plain
from autobatch.runs.entry import entry, name_of
from autobatch.runs.lifted import is_lifted, lifted
from autobatch.runs.running import run
from autobatch.streams.stream import planned, results
from autobatch.structure import own_attribute
from autobatch.transforms.public import derived, transform
from autobatch.transforms.records import transform_of
from autobatch.vm.library import Library

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Any])

LIBRARY = Library()
"""The process's lowered functions: a function is lowered once, however often it is mapped."""


class Function(Generic[P, R]):
    """A per-example function that can also run for a batch; see ``function``.

    Calling it runs the plain Python function. ``batch`` runs it for all examples at once.
    """

    def __init__(self, wrapped: Callable[P, R], options: Options) -> None:
        functools.update_wrapper(self, wrapped)
        self._function = wrapped
        self.options = options

    @property
    def __autobatch_function__(self) -> Callable[P, R]:
        """The plain function; ``functools.wraps`` hands on no property to wrappers around it."""
        return self._function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return self._function(*args, **kwargs)
        except RuntimeError as error:
            noted_of_one(error, name_of(self._function), args)
            raise

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: Function[Concatenate[S, Q], R], instance: S, owner: type | None = None
    ) -> Function[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        bound = self.__autobatch_function__.__get__(instance, owner)
        return Function(bound, self.options)

    def __eq__(self, other: object) -> bool:
        """Of a method, equal for one instance, as methods are: each ``a.m`` is a new object."""
        if type(other) is not Function or not isinstance(self._function, MethodType):
            return self is other
        return self._function == other._function and self.options is other.options

    def __hash__(self) -> int:
        method = isinstance(self._function, MethodType)
        return hash(self._function) if method else object.__hash__(self)

    def __reduce__(self) -> Any:
        """By name where that is what it has, as functions are pickled."""
        named = _named(self)
        if named is self:
            return self.__qualname__
        same = isinstance(named, Function) and named._function is self._function
        return _restored, (named if same else self._function, self.options)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.__autobatch_function__)

    def __repr__(self) -> str:
        return f"<autobatch.function {name_of(self.__autobatch_function__)}>"

    @uncompiled  # torch.compile of what calls it leaves it as it is
    def batch(self, *args: Any, **kwargs: Any) -> Any:
        """The function for every example of a batch.

        Tensors and arrays ``[B, *E]``, lists of B numbers, ``objects(...)``, ``ragged(...)`` and
        nested tensors of B parts are mapped, positional or by keyword; everything else
        is the same for all examples. ``in_dims`` among the options maps like ``torch.vmap``
        instead. Results are stacked: ``[B, *E]``, or as the option ``ragged_out`` says.

        Raises what the plain loop over the examples raises, and ``AutobatchError``.
        """
        wrapped = self.__autobatch_function__
        return call(wrapped, batch_of(wrapped, args, kwargs, self.options), self.options)

    def stream(
        self,
        examples: Iterable[Any],
        width: int = 1024,
        order: str = "completion",
        *,
        shared: Mapping[str, Any] | None = None,
        device: Any = None,
        **options: Any,
    ) -> Iterator[tuple[int, Any]]:
        """The function for every example of an iterable; see ``autobatch.stream``.

        The function's own options hold, but for those of batches (``in_dims``, ``out_dims``,
        ``chunk_size``, ``ragged_out``).
        """
        wrapped, given = self.__autobatch_function__, (self.options, options, LIBRARY)
        return results(planned(wrapped, examples, width, order, shared, device, *given))

    def with_options(self, **options: Any) -> Function[P, R]:
        """The same function with some options replaced."""
        return Function(self.__autobatch_function__, self.options.updated(options))


def _named(function: Any) -> Any:
    """What has its module and name; None if nothing has."""
    found: Any = sys.modules.get(function.__module__)
    name = own_attribute(function, "__qualname__")
    for part in name.split(".") if name else ():
        found = getattr(found, part, None)
    return found if name else None


def _restored(function: Any, options: Options) -> Function[Any, Any]:
    """A pickled one; ``function`` may be decorated where it was found, a method for one."""
    return Function(own_attribute(function, "__autobatch_function__", function), options)


@overload
def function(func: Callable[P, R], /) -> Function[P, R]: ...
@overload
def function(**options: Any) -> Callable[[Callable[P, R]], Function[P, R]]: ...
def function(func: Any = None, /, **options: Any) -> Any:
    """Decorate a per-example function: ``f(x)`` stays plain Python, ``f.batch(xs)`` runs a batch.

    Args:
        func: a Python function or method with source, written for one example. One that is
            decorated keeps its options, but for those that are said here.
        **options: see ``Options``.
    """
    settings = Options().updated(options)

    def decorated(func: Any) -> Function[..., Any]:
        if isinstance(func, classmethod):  # a staticmethod can be called
            told = "put @classmethod above it, as the outer decorator"
            raise TypeError(f"autobatch.function decorates functions; it got a classmethod: {told}")
        if not callable(func):
            raise TypeError(f"autobatch.function decorates functions; it got {func!r}")
        return func.with_options(**options) if type(func) is Function else Function(func, settings)

    return decorated if func is None else decorated(func)


@transform("vmap")
def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = UNSAID,
    *,
    chunk_size: int | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """``torch.vmap`` for functions with any control flow.

    ``vmap(f)(xs)[i]`` is ``f`` run as plain Python on a private copy of row ``i``: values (to
    floating-point tolerance), dtype, structure and exception.

    Args:
        func: a Python function, method, ``nn.Module`` or callable, written for one example. The
            options of a decorated one hold, but for those that are said here, and for ``in_dims``
            and ``out_dims``.
        in_dims: the dimension to map of each positional argument (nested like the arguments);
            None for what is the same for all examples. Keyword arguments are the same
            for all examples, as in ``torch.vmap``, but for ``objects(...)`` and ``ragged(...)``.
            Those and nested tensors are mapped along dimension 0.
        out_dims: where the batch dimension goes in each result (nested like the result); None
            for a result that is the same for all examples, which then comes back as it is.
        randomness: ``"error"``, ``"different"`` or ``"same"``: what draws mean. A ``seed`` implies
            ``"different"``.
        chunk_size: run at most so many examples at once.
        **options: see ``Options``.
    """
    given = own_options(func)
    if randomness is not UNSAID:
        given["randomness"] = randomness
    if chunk_size is not None:
        given["chunk_size"] = chunk_size
    given |= options
    settings = Options().updated({**given, "in_dims": in_dims, "out_dims": out_dims})
    if not callable(func):
        raise TypeError(
            f"autobatch.vmap maps functions; it got {func!r}. It takes the function itself, what "
            "it gives takes the arguments: autobatch.vmap(f)(x)"
        )

    @uncompiled
    def mapped(*args: Any, **kwargs: Any) -> Any:
        if is_lifted(args, kwargs):
            draws = None if settings.seed is not None else settings.draws
            return lifted(lambda dims: vmap(whole, dims, **given), args, kwargs, draws)
        return call(func, mapped_by_dims(args, kwargs, in_dims, func), settings)

    whole = derived(transform_of(vmap, (in_dims, out_dims), given), func, mapped)
    whole.__autobatch_mapped__ = (func, settings)  # type: ignore[attr-defined]
    return whole


def stream(
    func: Callable[..., Any],
    examples: Iterable[Any],
    width: int = 1024,
    order: str = "completion",
    *,
    shared: Mapping[str, Any] | None = None,
    device: Any = None,
    **options: Any,
) -> Iterator[tuple[int, Any]]:
    """Run a function for every example of an iterable, ``width`` of them at a time.

    As threads finish, new ones take their place: no example waits for the slowest of a batch.
    Nothing runs before the first result is asked for, and all runs on the host thread that asks.
    What is in flight takes memory, and, in input order, results that wait for earlier ones.

    Args:
        func: a Python function, method, ``nn.Module`` or callable, written for one example. The
            options of a decorated one hold, but for those that are said here.
        examples: any iterable, endless ones too. An example is a tuple of positional arguments, a
            dict of arguments by name, else the single argument, as a named tuple is, which programs
            take for a record (``tuple(example)`` for its fields); a tensor ``[*E]`` or array comes
            as a tensor, a Python number as a number, anything else as an object (a private copy
            where it is a list, dict or set). ``scalars="python"`` makes numbers of 0-d tensors.
        width: how many threads are in flight. New ones may wait until a tenth of it is free.
        order: ``"completion"``: results as they come; ``"input"``: in the order of the examples.
        shared: arguments by name that are the same for all examples.
        device: where the tensors of the examples go; as they are by default.
        **options: see ``Options``. The engine is ``"stackless"`` for a program that is seen not to
            call itself, nor functions with loops, else ``"program_counter"``, unless given. Where
            calls stand in a loop of the caller's, it is ``"stackless"`` whatever loops they have.
            A step's mask is over the rows in flight, ``[width]``. ``in_dims``, ``out_dims``,
            ``chunk_size`` and ``ragged_out`` have no meaning.

    Yields:
        ``(index, result)``: the number of an example, from 0, and what the plain function returns
        for a private copy of it: tensors, numbers, objects, in its structure. Results do not stack.

    Raises:
        OptionError: at once, for an argument or option that is of no use.
        Exception: what ``func`` raises for an example. No more are admitted then; the results of
            those before it are yielded first. So it is with limits (``max_steps`` counts the block
            executions that an example takes part in). What ``examples`` raises comes after the
            results of all that were admitted.
            ``KeyboardInterrupt`` and other errors that are no ``Exception`` end the stream at once,
            whoever raises them: what has not been yielded is not. Nothing of it is kept.
    """
    if isinstance(func, Function):
        return func.stream(examples, width, order, shared=shared, device=device, **options)
    given = (Options(), options, LIBRARY)
    return results(planned(func, examples, width, order, shared, device, *given))


def batch_of(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: Options
) -> Batch:
    """Arguments as ``.batch`` maps them: by kind, or by ``in_dims`` if the options have it."""
    try:
        if options.in_dims is None:
            return mapped_by_kind(args, kwargs, func)
        return mapped_by_dims(args, kwargs, options.in_dims, func)
    except OptionError as error:  # of an option among the arguments, say, taken for one of them
        if note := misfit(func, args, kwargs):
            error.add_note(note)
        raise


def call(func: Callable[..., Any], batch: Batch, options: Options) -> Any:
    try:
        result = run(func, batch, options, LIBRARY.under(options.passes, options.writes))
        return plain(of_its_own(result, batch))
    except TypeError as error:
        noted(error, func, batch)
        raise


def per_thread(func: F) -> F:
    """Mark a function to run thread by thread on the host, once per thread, in thread order."""
    return marked(func, "unknown")


def primitive(func: F) -> F:
    """Mark a function to run as one operation under vmap; it is taken to be pure."""
    return marked(func, "torch")


def marked(func: F, effect: str) -> F:
    if not callable(func):
        raise TypeError(f"autobatch.per_thread and primitive mark functions; they got {func!r}")

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    wrapper.__autobatch__ = effect  # type: ignore[attr-defined]
    return wrapper  # type: ignore[return-value]


def lower(
    func: Callable[..., Any],
    in_shapes: Mapping[str, Sequence[int | None]] | None = None,
    *,
    passes: Sequence[Pass | str] | None = None,
) -> Program:
    """The program that ``func`` is lowered to; ``str(program)`` is its text.

    Args:
        func: a Python function, method, ``nn.Module`` or callable, written for one example.
        in_shapes: the event shape of inputs by parameter, None for a dimension of any size
            (``{"x": (3, None)}``). ``execute`` holds inputs to them.
        passes: what runs instead of the pipeline, ``autobatch.passes.PIPELINE``: names of
            passes, and callables that take and give a ``Function``; ``[]`` for none.

    Raises ``UnsupportedError`` with file, line and caret for what programs cannot hold,
    ``OptionError`` for a shape of what is no parameter, ``VerifierError`` for a pass whose result
    breaks a rule.
    """
    if not callable(func):
        raise TypeError(f"autobatch.lower takes a function; it got {func!r}")
    given = None if passes is None else as_passes(passes)
    program = LIBRARY.under(given).program(entry(func))
    if in_shapes is None:
        return with_types(program)
    if not isinstance(in_shapes, Mapping):
        raise OptionError(f"in_shapes is {in_shapes!r}; it must map parameters to event shapes.")
    shapes = {name: as_shape(shape) for name, shape in in_shapes.items()}
    declared = replace(program, in_shapes=shapes)
    for fault in shapes_fit(declared):
        raise OptionError(f"in_shapes of {name_of(func)}: {fault}.")
    known = CallTypes(declared).noted(declared.entry)
    main = replace(declared.main, types=known)
    functions = {**with_types(declared).functions, declared.entry: main}
    return replace(declared, functions=functions)


def as_shape(shape: Any) -> Any:
    """Lists and ``torch.Size`` as tuples; what is no shape stays, to be named."""
    return tuple(shape) if isinstance(shape, list | tuple) else shape
