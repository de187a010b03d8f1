"""One block of a program function for variables of some types, as LLVM's text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any, Protocol

from autobatch.batching.binding import bind
from autobatch.batching.calling.resolving import resolve_object
from autobatch.compiled import items, torch_functions
from autobatch.compiled.functions import FUNCTIONS, METHODS, Compiled
from autobatch.compiled.library import meaning
from autobatch.compiled.names import Names
from autobatch.compiled.operations import execute
from autobatch.compiled.operators import known_bit, truth
from autobatch.compiled.types import (
    Items,
    Method,
    Number,
    Range,
    Refused,
    Static,
    Type,
    Value,
    common,
    fresh,
    machine_of,
    refuse,
    static,
    structure,
)
from autobatch.compiled.versions import Key, Version
from autobatch.compiled.writer import mark_of
from autobatch.forms import meant
from autobatch.ir.program import (
    Block,
    Branch,
    Call,
    CallShape,
    Join,
    Jump,
    Label,
    Op,
    Raise,
    Return,
)
from autobatch.vm.code import Code

RULES = {**FUNCTIONS, **items.FUNCTIONS, **torch_functions.FUNCTIONS}
"""The functions that have a rule of their own."""


class Waits(Exception):
    """A block calls a function of which it is not known yet what it returns."""

    def __init__(self, callee: Version) -> None:
        super().__init__(callee.name)
        self.callee = callee


class Unbound(Exception):
    """A variable is read that has no value: an error of the program's."""


class Functions(Protocol):
    """Where blocks find what else is compiled with them."""

    @property
    def names(self) -> Names: ...
    def version(self, code: Code, function: FunctionType, env: dict[str, Type]) -> Version: ...
    def reach(self, version: Version, key: Key) -> str: ...
    def returns(self, version: Version, type_: Type) -> None: ...


class BlockWriter:
    """One block for variables of some types; ``env`` holds their values as they are at work."""

    def __init__(self, unit: Functions, version: Version, key: Key) -> None:
        self.unit = unit
        self.version = version
        self.key = key
        self.block: Block = version.lowered.blocks[key[0]]
        self.w = version.writer
        self.env: dict[str, Value] = {}

    @property
    def names(self) -> Names:
        return self.unit.names

    def written(self) -> list[str]:
        w = self.w
        w.lines = []
        w.begin(self.version.labels[self.key])
        if self.key[0] not in self.version.returning:
            w.emit("br label %given_up")
            return w.lines
        for name, type_ in self.key[1]:
            self.env[name] = self.loaded(name, type_)
        place: Op | Any = self.block.terminator
        try:
            if self.block.modes:  # a `try` has no more to do: what raises gives up
                refuse("a `with` has no compiled form")
            for place in self.block.ops:
                execute(self, place)
            place = self.block.terminator
            self.terminated()
        except Refused as refused:
            raise refused if refused.span else Refused(refused.why, place.span) from None
        except Unbound:
            w.emit("br label %given_up")
        return w.lines

    def loaded(self, name: str, type_: Type) -> Value:
        places = zip(self.version.places(name, type_), machine_of(type_), strict=True)
        return Value(type_, tuple(self.w.made(f"load {kind}, ptr {at}") for at, kind in places))

    # Variables

    def read(self, name: str) -> Value:
        """The value of a variable; an iterator is nobody's but its loop's."""
        value = common(self.held(name))
        if isinstance(value.type, Range | Items) and value.type.is_iterator:
            refuse("an iterator is used outside of its loop")
        return value

    def held(self, name: str) -> Value:
        fixed = self.version.constants.get(name)
        if fixed is not None:
            return static(fixed[0])
        if name not in self.env:
            raise Unbound(name)
        return self.env[name]

    def set(self, name: str, value: Value) -> None:
        if isinstance(value.type, Items) and not name.startswith("%"):
            refuse("an iterator is used outside of its loop")
        self.env[name] = value

    def after(self, op: Op) -> frozenset[str]:
        return self.version.code.after(self.key[0], op)

    @property
    def leaving(self) -> frozenset[str]:
        """The variables that are read when the block's operations are done."""
        return self.version.code.needed(self.block)

    def share(self, names: Sequence[str]) -> None:
        """Something else refers to what these variables hold, from now on."""
        for name in set(names).intersection(self.env):
            self.env[name] = common(self.env[name])

    # Ends

    def terminated(self) -> None:
        match self.block.terminator:
            case Jump(target=target):
                self.go(target)
            case Branch(condition=condition, then=then, otherwise=otherwise):
                self.branch(self.read(condition), then, otherwise)
            case Call(out=out, callee=callee, args=args, shape=shape, target=target):
                made = self.outcomes(self.read(callee), [self.read(a) for a in args], shape)
                self.share(args)
                for value in made:
                    self.set(out, value)
                    self.go(target)
            case Return(value=value):
                self.give(self.read(value))
            case Raise():
                self.w.emit("br label %given_up")
            case Join():
                refuse("calls that wait for each other have no compiled form")

    def branch(self, condition: Value, then: Label, otherwise: Label) -> None:
        known = known_bit(condition)
        if known is not None:
            self.go(then if known else otherwise)
            return
        w = self.w
        yes, no = w.fresh(), w.fresh()
        w.emit(f"br i1 {truth(w, condition)}, label %{yes}, label %{no}")
        w.begin(yes)
        self.go(then)
        w.begin(no)
        self.go(otherwise)

    def go(self, target: Label) -> None:
        """On at a block, with what lives there; a way back burns fuel."""
        fixed = self.version.constants
        wanted = sorted(self.version.lowered.live_in[target])
        held = [(n, self.env[n]) for n in wanted if n in self.env and n not in fixed]
        mine = self.version.written
        live = [(name, value if name in mine else common(value)) for name, value in held]
        for name, value in live:
            places = self.version.places(name, value.type)
            for place, kind, leaf in zip(places, machine_of(value.type), value.leaves, strict=True):
                self.w.emit(f"store {kind} {leaf}, ptr {place}")
        if target <= self.key[0]:
            self.w.burn()
        key = (target, tuple((name, value.type) for name, value in live))
        self.w.emit(f"br label %{self.unit.reach(self.version, key)}")

    def give(self, value: Value) -> None:
        self.unit.returns(self.version, value.type)
        kind, way = self.version.machine_result(), self.version.results.index(value.type)
        made = self.w.made(f"insertvalue {kind} undef, i8 {mark_of(way)}, 0")
        first = self.version.first_leaf(way)
        for at, (leaf, machine) in enumerate(
            zip(value.leaves, machine_of(value.type), strict=True), start=first
        ):
            made = self.w.made(f"insertvalue {kind} {made}, {machine} {leaf}, {at}")
        self.w.emit(f"ret {kind} {made}")

    # Calls

    def called(self, callee: Value, args: Sequence[Value], shape: CallShape) -> Value:
        """What a call gives within a block."""
        made, *others = self.outcomes(callee, args, shape)
        if others:
            refuse(f"{callee.type} returns {made.type} or {others[0].type}")
        return made

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
        text = meaning(getattr(callee.type, "obj", None), args[:count])
        if text is not None and not named:
            yield from self.entered(text, args, named)
            return
        rule, given = rule_of(callee, args[:count])
        if rule is not None:
            if named:
                refuse(f"{callee.type} has no compiled form with keyword arguments")
            made = rule(self.w, given)
            yield fresh(made) if rule in torch_functions.FRESH else made
        else:
            yield from self.program(callee, given, named)

    def program(
        self, callee: Value, args: Sequence[Value], named: dict[str, Value]
    ) -> Iterator[Value]:
        obj = meant(callee.type.obj) if isinstance(callee.type, Static) else None
        target = resolve_object(obj, [], {})
        function = target.callee
        plain = target.effect == "program" and not target.args and not target.kwargs
        if obj is None or not plain or not isinstance(function, FunctionType):
            refuse(f"{callee.type} has no compiled form")
        yield from self.entered(function, args, named)

    def entered(
        self, function: FunctionType, args: Sequence[Value], named: dict[str, Value]
    ) -> Iterator[Value]:
        code = self.names.code_of(function)
        params = code.function.params
        given = self.names.defaults_of(function, params)
        defaults = {name: static(value) for name, value in given.items()}
        try:
            bound = bind(params, function.__qualname__, args, named, defaults)
        except TypeError as error:
            raise Refused(str(error)) from None
        env = {name: packed(value) for name, value in bound.items()}
        types = {name: value.type for name, value in env.items()}
        yield from self.invoked(self.unit.version(code, function, types), env)

    def invoked(self, callee: Version, env: dict[str, Value]) -> Iterator[Value]:
        if callee not in self.version.callees:
            self.version.callees.append(callee)
        callee.callers[self.version, self.key] = None
        if not callee.results:
            raise Waits(callee)
        w = self.w
        given = [
            f"{kind} {leaf}"
            for name, type_ in callee.params
            for kind, leaf in zip(machine_of(type_), env[name].leaves, strict=True)
        ]
        kind = callee.machine_result()
        operands = ", ".join([*given, "ptr %fuel", "i64 %deeper"])
        made = w.made(f"call {kind} @{callee.name}({operands})")
        mark = w.made(f"extractvalue {kind} {made}, 0")
        w.emit(f"store i8 {mark}, ptr %mark")
        results = list(callee.results)
        labels = [w.fresh() for _ in results]
        ways = " ".join(f"i8 {mark_of(way)}, label %{at}" for way, at in enumerate(labels))
        w.emit(f"switch i8 {mark}, label %failed [{ways}]")
        for way, (label, type_) in enumerate(zip(labels, results, strict=True)):
            w.begin(label)
            places = range(callee.first_leaf(way), callee.first_leaf(way + 1))
            leaves = [w.made(f"extractvalue {kind} {made}, {at}") for at in places]
            yield Value(type_, tuple(leaves))


def packed(value: Any) -> Value:
    """An argument as its parameter has it: ``*args`` is a tuple, ``**kwargs`` a dict."""
    if isinstance(value, Value):
        if isinstance(value.type, Items):
            refuse("an iterator is used outside of its loop")
        return value
    if isinstance(value, dict):
        return structure(dict, list(value.values()), tuple(value))
    return structure(tuple, list(value)) if isinstance(value, tuple) else static(value)


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
