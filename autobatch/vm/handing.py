"""Functions that host code is given to call: kept from writing what existed before the call.

In: a function, method or callable object of the user's that goes to ``sorted``, ``map``,
``functools.reduce`` and the like, or a method that Python calls by itself (``__str__``). Out: for
the former a twin that the definitional interpreter runs under a ``Watch``, which refuses the write
itself; for the latter, and where nothing tells who calls, the error by which lowering refuses a
write that it sees, in the function or in one that it calls. What is known to write nothing goes as
it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any

from autobatch.batching.calling.resolving import is_call_of_function
from autobatch.batching.effects import effect_of, is_generated_init
from autobatch.batching.foreign import Foreign
from autobatch.batching.generators import Given, is_generator
from autobatch.batching.host.getters import note_function, note_named
from autobatch.batching.host.making import Static, handed_on, static_of
from autobatch.batching.host.named import asks_by_name, watched
from autobatch.batching.host.own_methods import refuse_finalizer
from autobatch.batching.kinds import NO_FUNCTION
from autobatch.batching.switching import refuse_switch
from autobatch.errors import AutobatchError
from autobatch.frontend import MISSING, lower
from autobatch.ir.definitions import definitions_of
from autobatch.source import Span
from autobatch.structure import own_attributes
from autobatch.vm.library import Library, function_of
from autobatch.vm.looking import Looking, seen
from autobatch.vm.nested import Nested
from autobatch.vm.purity import Known, Names
from autobatch.vm.sequential.frames import Callee, Closure
from autobatch.vm.sequential.interpreter import Interpreter
from autobatch.vm.sequential.watching import Watch

WRITES = frozenset({"shared-write", "global-write", "nonlocal-write"})
"""The refusals of lowering that are of writes to what is not the call's own."""


@dataclass(slots=True, eq=False, repr=False)
class Handing:
    """``foreign`` is what existed before; ``twins`` and what has been ``looked`` at go by id.

    ``draws`` is what draws mean in what runs as a twin, as in ``torch.vmap``. ``suspended`` are
    functions that yield which only compute.
    """

    library: Library
    foreign: Foreign
    draws: str = "different"
    twins: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    span: Span | None = None
    looked: dict[tuple[int, bool], FunctionType] = field(default_factory=dict)
    suspended: dict[tuple[int, Given], FunctionType] = field(default_factory=dict)

    def twin(self, item: Any) -> Any:
        """What host code may call in the place of ``item``, which is that for most things."""
        found = self.twins.get(id(item))
        if found is None:
            refuse_switch(self.span, item)
            found = self.twins[id(item)] = (item, self.made(item))
        return found[1]

    def made(self, item: Any) -> Any:
        made = static_of(item) if type(item) is FunctionType else None
        if made is not None:
            raise handed_on(made[0], self.span)
        if isinstance(item, partial):
            function = self.twin(item.func)
            return item if function is item.func else partial(function, *item.args, **item.keywords)
        if type(item) is MethodWrapperType and is_call_of_function(item):
            function = self.twin(item.__self__)
            return item if function is item.__self__ else function
        if isinstance(item, type):
            refuse_finalizer(self.span, item)
            return self.kind(item)
        if isinstance(item, Closure):
            return item
        if asks_by_name(item):
            return watched(self, self.foreign.holds, item)
        if effect_of(item) != "program":
            is_c = isinstance(
                item, BuiltinFunctionType | MethodDescriptorType | WrapperDescriptorType
            )
            if not is_c:  # nor compared: objects of other types may have an ``__eq__`` of their own
                return item
            writes = item in (setattr, delattr) or effect_of(item) in ("unknown", "write")
            return partial(self.plain, item) if writes else item
        function, receiver = taken_apart(item)
        if not isinstance(function, FunctionType):
            return item
        if not self.library.has_effects(function, receiver, self.draws == "error"):
            return item
        is_own = receiver is None or not self.foreign.holds(receiver)
        known = MISSING if is_own else receiver  # its own the program may write
        try:
            lowered = self.library.code_of(function, known).function
        except AutobatchError as error:
            if is_write(error):
                raise
            return item  # Python runs it
        watch = self.watch()
        watch.entered(function)
        interpreted = Closure(Callee.of(lowered, function), self.runner())
        return interpreted if receiver is None else partial(interpreted, receiver)

    def kind(self, kind: type) -> Any:
        """A class of the user's, or what makes its instances by a twin of its ``__init__``.

        Or of the ``__post_init__`` of a dataclass, where instances have a place for it.
        """
        init = inherited(kind, "__init__")
        by_post = is_generated_init(init) and bool(kind.__dictoffset__)
        made = inherited(kind, "__post_init__") if by_post else init
        is_plain = type(kind).__call__ is type.__call__ and isinstance(made, FunctionType)
        if not is_plain or effect_of(made) != "program":
            return kind
        if not self.library.has_effects(made, None, self.draws == "error", makes=not by_post):
            return kind
        twin = self.twin(made)
        return partial(dataclass_instance if by_post else instance, kind, twin)

    def refuse_generator(self, function: FunctionType, given: Given) -> None:
        """Refuse a function that yields where others may see what it does.

        Or what the classes do that have instances in what it is given.
        """
        made = static_of(function)  # of a program, which has it once for all threads
        key = (id(function if made is None else made[0]), given)
        if key in self.suspended:
            return
        for each in (function, *(called for _, called in given.called)):
            if isinstance(each, FunctionType):
                note_function(self.foreign, each)
        for kind in given.kinds:
            note_named(self.foreign, kind)
        found = Looking(self.library, self.draws == "error", given).found(function)
        if found is not None:
            raise seen(function, found)
        self.suspended[key] = function  # kept alive

    def lasting(self, static: Static) -> Collection[str]:
        """The captured variables of a function that hold one of the program's, and no other."""
        return self.library.names_within(Nested(*static[:2])).nested.keys()

    def within(self, static: Static) -> Nested:
        return Nested(*static[:2])

    def plain(self, callee: Any, *args: Any, **kwargs: Any) -> Any:
        """A function in C that may write what it is given: ``map(list.append, …)``."""
        return self.watch().plain(callee, list(args), kwargs, self.span)

    def runner(self) -> Callable[..., Any]:
        """Runs calls from Python, each of which refuses to write what existed before."""
        return lambda *call: Interpreter(self.lookup, watch=self.watch(), draws=self.draws).run(
            *call
        )

    def watch(self) -> Watch:
        return Watch(self.library.code_of, self.foreign, handing=self)

    def lookup(self, function: FunctionType) -> Any:
        if effect_of(function) != "program":
            return None
        return self.library.code_of(function).function

    def refuse(self, callee: Any, receiver: object = None) -> None:
        """Raise the error by which lowering refuses a write in a function or in what it calls."""
        known: object = MISSING if receiver is None else receiver
        found = (callee, known) if isinstance(callee, FunctionType) else function_of(callee)
        waiting = [] if found is None else [found]
        while waiting:
            function, own = waiting.pop()
            key = (id(function), own is MISSING)
            if key in self.looked or not self.is_program(function):
                continue
            try:  # anew: what is kept may have been lowered for a receiver of the program's own
                lowered = lower(
                    function, self.library.resolver, receiver=own, yields=is_generator(function)
                ).function
            except AutobatchError as error:
                if is_write(error):
                    raise
                continue
            self.looked[key] = function
            names = Known(lowered, Names.of(function, own), definitions_of(lowered))
            for name, _ in names.calls():
                value = names.value(name)
                inner = None if value is MISSING else function_of(value)
                if inner is not None:
                    waiting.append(inner)

    def is_program(self, function: Any) -> bool:
        """Whether a function is the user's, in a form that is lowered, if only to look into it."""
        return is_generator(function) or (
            isinstance(function, FunctionType)
            and effect_of(function) == "program"
            and not function.__code__.co_flags & NO_FUNCTION
        )


def instance(kind: type, init: Callable[..., None], *args: Any, **kwargs: Any) -> Any:
    """What calling a class gives, whose ``__init__`` is ``init``."""
    made = kind.__new__(kind, *args, **kwargs)
    if isinstance(made, kind):
        init(made, *args, **kwargs)
    return made


def dataclass_instance(kind: type, post: Callable[..., None], *args: Any, **kwargs: Any) -> Any:
    """What calling a dataclass gives, whose ``__post_init__`` is ``post``."""
    made = kind.__new__(kind, *args, **kwargs)
    own_attributes(made)["__post_init__"] = partial(post, made)  # type: ignore[index]
    try:
        made.__init__(*args, **kwargs)
    finally:
        own_attributes(made).pop("__post_init__", None)  # type: ignore[union-attr]
    return made


def inherited(kind: type, name: str) -> Any:
    """What instances of a class have from it by a name, as it stands in a class."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def is_write(error: AutobatchError) -> bool:
    return error.diagnostic.code in WRITES


def taken_apart(item: Any) -> tuple[Any, Any]:
    """The function of a method or of an object that can be called, and the receiver."""
    if isinstance(item, FunctionType):
        return item, None
    if isinstance(item, MethodType):
        return item.__func__, item.__self__
    return getattr(type(item), "__call__", None), item  # noqa: B004
