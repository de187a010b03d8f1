"""What a block calls: rules, torch's functions, classes, derivatives and other program functions.

Another function may have several results, of other types; what follows a call goes on for each.
Threads that come to a ``print`` give up: machine code is not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import FunctionType, MethodType
from typing import Any, Protocol

import torch

from autobatch.batching.binding import bind
from autobatch.batching.calling.meaning import called_as
from autobatch.batching.calling.resolving import resolve_object
from autobatch.batching.effects import effect_of, is_calling, is_generated_init
from autobatch.compiled import (
    closures,
    drawing,
    hashing,
    items,
    list_functions,
    objects,
    python_draws,
    raising,
    sequences,
    tables,
    torch_functions,
)
from autobatch.compiled.arrays import calls
from autobatch.compiled.arrays.graph import draws
from autobatch.compiled.arrays.lowering import lowered
from autobatch.compiled.arrays.memory import Strided, copied, strided
from autobatch.compiled.arrays.roots import lent, may_view, owned, roots_of, unmarked
from autobatch.compiled.derivatives import MAKERS, Derived, options_of
from autobatch.compiled.functions import FUNCTIONS, METHODS, Compiled, Unfit
from autobatch.compiled.library import meaning
from autobatch.compiled.names import Names
from autobatch.compiled.operators import known_bit
from autobatch.compiled.types import (
    Array,
    Bound,
    Closure,
    Items,
    Layout,
    Made,
    Method,
    Number,
    Refused,
    Rows,
    Scalar,
    Static,
    Table,
    Type,
    Value,
    bytes_of,
    flat_types,
    fresh,
    machine_of,
    of_leaves,
    refuse,
    static,
    structure,
)
from autobatch.compiled.versions import Key, Version
from autobatch.compiled.writer import Writer, mark_of
from autobatch.forms import meant
from autobatch.ir.program import CallShape, Function, Op
from autobatch.values.cells import Uniform
from autobatch.vm.code import Code

RULES = {**FUNCTIONS, **items.FUNCTIONS, **hashing.FUNCTIONS, **torch_functions.FUNCTIONS}
"""The functions that have a rule of their own."""
SEQUENCES = {**sequences.RULES, **list_functions.RULES, **tables.RULES}
"""Those that go through what they are given, which may give values of several types."""


LOOKED_AT = (
    *("__init__", "__new__", "__post_init__", "__setattr__", "__getattr__", "__getattribute__"),
)
"""What of a class decides how its objects are made, and what their attributes are."""


Failure = tuple[str, type[BaseException], dict[str, Value], set[str]]
"""Where it is written how an exception of a class goes on, the variables, and arrays' owners."""


class Waits(Exception):
    """A block calls a function of which it is not known yet what it returns.

    Or it reads an attribute of which it is not known yet what it holds.
    """


class Functions(Protocol):
    """Where blocks find what else is compiled with them."""

    @property
    def names(self) -> Names: ...
    def version(
        self,
        code: Code,
        function: FunctionType,
        env: dict[str, Type],
        is_main: bool = False,
        within: Made | None = None,
        site: int = 0,
    ) -> Version: ...
    def made_of(self, code: Function, home: FunctionType) -> Made: ...
    def reach(self, version: Version, key: Key) -> str: ...
    def returns(self, version: Version, type_: Type) -> None: ...
    def write_again(self, places: Iterable[tuple[Version, Key]]) -> None: ...
    def layout(self, kind: type) -> Layout: ...
    def derivative(self, make: Any, function: Any, options: dict[str, Any]) -> Derived: ...


class Calling:
    """The calls of a block, which are written where its instructions are.

    ``env`` holds its variables as they are at work. ``opens``: the call at work ends the block, so
    that it opens a path of draws. ``raising`` are the ways to the block's handler that are to be
    written, ``place`` is the operation that is.
    """

    def __init__(self, unit: Functions, version: Version, key: Key) -> None:
        self.unit = unit
        self.version = version
        self.key = key
        self.w = version.writer
        self.env: dict[str, Value] = {}
        self.opens = False
        self.raising: list[Failure] = []
        self.place: Op | Any = version.lowered.blocks[key[0]].terminator

    @property
    def names(self) -> Names:
        return self.unit.names

    def densely(self, value: Value) -> str:
        """The address of a copy of a tensor, contiguous."""
        whole = strided(value)
        assert isinstance(whole, Strided)
        return copied(self.w, whole).leaf

    # Objects

    def attribute(self, owner: Value, name: str) -> Value:
        """An attribute of an object that the program has made."""
        found = objects.get(self.w, self.names, owner, name, (self.version, self.key))
        if found is None:
            raise Waits(name)
        return found

    def set_attribute(self, owner: Value, name: str, value: Value) -> None:
        self.unit.write_again(objects.set_(self.w, self.names, owner, name, value))

    def made(self, kind: type, args: Sequence[Value], named: dict[str, Value]) -> Iterator[Value]:
        """A call of a class."""
        for special in LOOKED_AT:
            self.names.of_class(kind, special)
        tuple_ = objects.named_tuple(kind, args, named)
        init = kind.__init__  # type: ignore[misc]
        runs = tuple_ is None and isinstance(init, FunctionType) and not is_generated_init(init)
        if self.w.seeded and self.opens and not runs:
            drawing.here(self.w)  # nothing runs, but a path is opened
        if tuple_ is not None:
            yield tuple_
            return
        if not objects.is_made(kind):
            refuse(f"{Static(kind)} has no compiled form")
        fields = objects.dataclass_fields(kind, args, named)
        made = objects.allocated(self.w, self.unit.layout(kind))
        for name, value in (fields or {}).items():
            self.set_attribute(made, name, value)
        if fields is None and isinstance(init, FunctionType):
            for _ in self.entered(init, [made, *args], named):
                yield made
            return
        if fields is None and (init is not object.__init__ or args or named):
            refuse(f"{Static(kind)} has no compiled form")
        yield made

    # Derivatives

    def derivative(
        self, callee: Any, args: Sequence[Value], named: dict[str, Value]
    ) -> Value | None:
        """A transform of a function, or the call of what it has made; None for another call."""
        try:
            makes = callee in MAKERS
        except TypeError:  # unhashable
            return None
        if makes:
            function = args[0].type if args else None
            options = options_of(named, list(args[1:]))
            if not isinstance(function, Static) or options is None:
                refuse(f"{callee.__name__} has a compiled form for a function that is known")
            return Value(Static(self.unit.derivative(callee, function.obj, options)))
        if not isinstance(callee, Derived):
            return None
        self.looked_at(Value(Static(callee.function)), args, named)
        graph, tensors = callee.graph(list(args), named)
        if any(map(draws, graph.graph.graph.nodes)):
            refuse(f"{Static(callee.function)} draws at random")
        return lowered(self.w, graph, tensors, self.names)

    def looked_at(self, callee: Value, args: Sequence[Value], named: dict[str, Value]) -> None:
        """Write a call and throw it away: it is refused if it does more than compute."""
        w = self.w
        lines, rooms, raising_ = len(w.lines), len(w.rooms), len(self.raising)
        for _ in self.program(callee, args, named):
            break
        del w.lines[lines:]
        del w.rooms[rooms:]
        del self.raising[raising_:]

    # Calls

    def outcomes(self, callee: Value, args: Sequence[Value], shape: CallShape) -> Iterator[Value]:
        """What a call may give: of a function that has a rule, or of another program function.

        With each, what is written next is for a call that has given it.
        """
        if not shape.is_plain:
            refuse("a call with * or ** has no compiled form")
        count = len(args) - len(shape.keywords)
        named = {str(k): v for k, v in zip(shape.keywords, args[count:], strict=True)}
        if callee.type == Static(zip) and "strict" in named and known_bit(named["strict"]) is False:
            del named["strict"]
        if callee.type == Static(enumerate) and count == 1 and "start" in named:
            args, count = [args[0], named.pop("start")], 2
        if isinstance(callee.type, Bound):
            self_ = Value(callee.type.owner, callee.leaves)
            function = Value(Static(callee.type.function))
            yield from self.program(function, [self_, *args[:count]], named)
            return
        if isinstance(callee.type, Closure):
            yield from self.closure_called(callee, args[:count], named)
            return
        kind = callee.type.obj if isinstance(callee.type, Static) else None
        if kind is print:
            self.w.emit("br label %given_up")
            return
        if raising.is_exception(kind):
            yield raising.raised(kind)
            return
        if isinstance(kind, type) and effect_of(kind) == "program":
            yield from self.made(kind, args[:count], named)
            return
        if isinstance(callee.type, Static):
            derived = self.derivative(callee.type.obj, args[:count], named)
            if derived is not None:
                yield derived
                return
        if isinstance(callee.type, Method) and isinstance(callee.type.owner, Table):
            yield from tables.called(self, callee, args[:count], named)
            return
        if isinstance(callee.type, Method) and list_functions.is_owner(callee.type):
            yield from list_functions.called(self, callee, args[:count], named)
            return
        ways = sequences.outcomes(SEQUENCES, self, kind, args[:count], named)
        if ways is not None:
            yield from ways
            return
        text = kind if python_draws.is_text(kind) else meaning(kind, args[:count])
        if text is None and self.w.seeded:
            text = python_draws.text(kind, args[:count])
        if text is not None and not named:
            yield from self.entered(text, args, named)
            return
        drawn = python_draws.rule(kind) if self.w.seeded else None
        if drawn is not None and not named:
            yield drawn(self.w, args)
            return
        of_torch = torch_function(self.w, callee, args)
        if of_torch is not None:
            owner = (
                [Value(callee.type.owner, callee.leaves)] if isinstance(callee.type, Method) else []
            )
            yield calls.called(self.w, of_torch, [*owner, *args[:count]], named, calls.Nowhere())
            return
        rule, given = rule_of(callee, args[:count])
        if rule is not None:
            typed = torch_functions.with_dtype(rule, named)
            if named and typed is None:
                told = " and ".join(f"{name}=" for name in named)
                refuse(f"{callee.type} has no compiled form with {told}")
            try:
                made = (typed or rule)(self.w, given)
            except Unfit as unfit:
                raise Refused(f"{callee.type} {unfit.why}") from None
            yield fresh(made) if rule in torch_functions.FRESH else made
        else:
            yield from self.program(callee, given, named)

    def program(
        self, callee: Value, args: Sequence[Value], named: dict[str, Value]
    ) -> Iterator[Value]:
        obj = meant(callee.type.obj) if isinstance(callee.type, Static) else None
        target = resolve_object(obj, [], {})
        function = target.callee
        shared = all(type(cell.value) is Uniform for cell in target.args)
        plain = target.effect == "program" and shared and not target.kwargs
        if obj is None or not plain or not isinstance(function, FunctionType):
            refuse(f"{callee.type} has no compiled form")
        first = [Value(Static(cell.value.obj)) for cell in target.args]  # type: ignore[union-attr]
        if isinstance(obj, MethodType) and is_calling(obj.__func__):
            obj = obj.__self__
        self.names.watch(called_as, obj)
        yield from self.entered(function, [*first, *args], named)

    def closed(self, value: Value) -> Value:
        """A value as another function has it, or is given it."""
        return closures.closed(value, self.env.get, self.version.settled)

    def function_of(self, code: Function) -> Made:
        """A function within this one."""
        return self.unit.made_of(code, self.version.function)

    def closure_called(
        self, callee: Value, args: Sequence[Value], named: dict[str, Value]
    ) -> Iterator[Value]:
        """A call of a function that the program has made."""
        callee = self.closed(callee)
        assert isinstance(callee.type, Closure)
        made = callee.type.function
        code = self.names.library.code_for(made.code)
        bound = self.bound(made.code, made.code.name, args, named, closures.defaults(callee))
        yield from self.begun(code, made.home, {**bound, closures.HIDDEN: callee}, made)

    def bound(
        self,
        code: Function,
        title: str,
        args: Sequence[Value],
        named: dict[str, Value],
        defaults: dict[str, Value],
    ) -> dict[str, Value]:
        """The parameters of a function."""
        try:
            found = bind(code.params, title, args, named, defaults)
        except TypeError as error:
            raise Refused(str(error)) from None
        return {name: packed(value) for name, value in found.items()}

    def entered(
        self, function: FunctionType, args: Sequence[Value], named: dict[str, Value]
    ) -> Iterator[Value]:
        code = self.names.code_of(function)
        given = self.names.defaults_of(function, code.function.params)
        defaults = {name: static(value) for name, value in given.items()}
        if python_draws.is_text(function) and not named and not defaults:
            env = {p.name: arg for p, arg in zip(code.function.params, args, strict=True)}
        else:
            env = self.bound(code.function, function.__qualname__, args, named, defaults)
        yield from self.begun(code, function, env)

    def begun(
        self,
        code: Code,
        function: FunctionType,
        env: dict[str, Value],
        within: Made | None = None,
    ) -> Iterator[Value]:
        """A call of a function with its parameters."""
        env = {name: self.closed(value) for name, value in env.items()}
        types = {name: of_leaves(value.type, lent) for name, value in env.items()}
        for type_ in types.values():
            if any(isinstance(leaf, Array) for leaf in flat_types(type_)):
                refuse(f"{type_} is an argument")
        site = self.version.site if self.w.of_library else self.w.site
        callee = self.unit.version(code, function, types, within=within, site=site)
        if callee.span is None:
            callee.span = self.version.span if self.w.of_library else self.place.span
        yield from self.invoked(callee, env)

    def invoked(self, callee: Version, env: dict[str, Value]) -> Iterator[Value]:
        if callee not in self.version.callees:
            self.version.callees.append(callee)
        callee.callers[self.version, self.key] = None
        if not callee.results:
            raise Waits(callee.name)
        w = self.w
        given = [
            f"{kind} {leaf}"
            for name, type_ in callee.params
            for kind, leaf in zip(machine_of(type_), env[name].leaves, strict=True)
        ]
        kind, size = callee.machine_result(), callee.area()
        area = w.room(size) if size else "null"
        operands = ", ".join([*given, f"ptr {area}", "ptr %fuel", "i64 %deeper"])
        opens = w.seeded and self.opens and not self.within_text(callee)
        path = drawing.opened(w) if opens else None
        made = w.made(f"call {kind} @{callee.name}({operands})")
        if path is not None:
            drawing.gone_to(w, *path)
        mark = w.made(f"extractvalue {kind} {made}, 0")
        w.emit(f"store i8 {mark}, ptr %mark")
        results = list(callee.results)
        labels = [w.fresh() for _ in results]
        ways = " ".join(f"i8 {mark_of(way)}, label %{at}" for way, at in enumerate(labels))
        w.emit(f"switch i8 {mark}, label %failed [{ways}]")
        for way, (label, type_) in enumerate(zip(labels, results, strict=True)):
            w.begin(label)
            yield self.returned(callee, way, type_, made, area, list(env.values()))

    def within_text(self, callee: Version) -> bool:
        """Whether a call is, or is within, what stands for a function of Python's."""
        return any(python_draws.is_text(each.function) for each in (callee, self.version))

    def returned(
        self, callee: Version, way: int, type_: Type, made: str, area: str, args: Sequence[Value]
    ) -> Value:
        """What a call has given. Where it may be an array that was lent, it is copied."""
        w, kind = self.w, callee.machine_result()
        arrays = {root for arg in args for root in roots_of(w, arg, Array)}
        leaves: list[str] = []
        at, far = callee.first_leaf(way), 0
        for leaf_type in flat_types(type_):
            size = bytes_of(leaf_type)
            if size:
                leaf = w.made(f"getelementptr i8, ptr {area}, i64 {far}")
                far += size
                if isinstance(leaf_type, Array) and leaf_type.own:
                    w.exclusive.add(leaf)
            else:
                leaf, at = w.made(f"extractvalue {kind} {made}, {at}"), at + 1
            if arrays and may_view(leaf_type):
                w.exclusive -= arrays
            if arrays and isinstance(leaf_type, Rows) and leaf_type.lent:
                leaf = self.densely(Value(leaf_type, (leaf,)))
                w.exclusive.discard(leaf)
            leaves.append(leaf)

        def held(leaf: Type, _: int) -> Type:
            borrowed = arrays and isinstance(leaf, Rows) and leaf.lent
            return owned(leaf, 0) if borrowed else unmarked(leaf, 0)

        return Value(of_leaves(type_, held), tuple(leaves))


def packed(value: Any) -> Value:
    """An argument as its parameter has it: ``*args`` is a tuple, ``**kwargs`` a dict."""
    if isinstance(value, Value):
        if isinstance(value.type, Items):
            refuse("an iterator is used outside of its loop")
        return value
    if isinstance(value, dict):
        return structure(dict, list(value.values()), tuple(value))
    return structure(tuple, list(value)) if isinstance(value, tuple) else static(value)


def torch_function(w: Writer, callee: Value, args: Sequence[Value]) -> Any | None:
    """The function of torch's that is called, if its graph is what it does here.

    Where all its tensors are 0-d, a rule of its own goes first.
    """
    wide = any(calls.within(arg) for arg in args)
    if isinstance(callee.type, Method):
        owner, name = callee.type.owner, callee.type.name
        ruled = isinstance(owner, Scalar) and name in torch_functions.METHODS and not wide
        item = name == "item" or isinstance(owner, Number)
        return None if ruled or item else calls.method(w, name)
    if wide and callee.type == Static(abs):
        return torch.abs
    if not isinstance(callee.type, Static) or not calls.has_rule(w, callee.type.obj):
        return None
    ruled = callee.type.obj in RULES and (not wide or callee.type.obj is torch.tensor)
    return None if ruled else callee.type.obj


def rule_of(callee: Value, args: Sequence[Value]) -> tuple[Compiled | None, Sequence[Value]]:
    """The rule that a callee has, if it has one, and what it is given."""
    if isinstance(callee.type, Method):
        rules = METHODS if isinstance(callee.type.owner, Number) else torch_functions.METHODS
        return rules[callee.type.name], [Value(callee.type.owner, callee.leaves), *args]
    if not isinstance(callee.type, Static):
        refuse(f"{callee.type} is no function")
    try:
        return RULES.get(callee.type.obj), args
    except TypeError:  # unhashable
        return None, args
