"""One block of a program function for variables of some types, as LLVM's text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from autobatch.compiled import closures
from autobatch.compiled.arrays.roots import handed, owned, roots_of, unmarked
from autobatch.compiled.calling import Calling, Functions
from autobatch.compiled.listing import refuse_twice
from autobatch.compiled.operations import execute
from autobatch.compiled.operators import known_bit, truth
from autobatch.compiled.raising import kind_of, raised
from autobatch.compiled.types import (
    Array,
    Items,
    Number,
    Range,
    Refused,
    Rows,
    Type,
    Value,
    bytes_of,
    common,
    flat_types,
    machine_of,
    of_leaves,
    refuse,
    static,
    unsited,
)
from autobatch.compiled.versions import Key, Version
from autobatch.compiled.writer import mark_of
from autobatch.ir.program import (
    Block,
    Branch,
    Call,
    Join,
    Jump,
    Label,
    Op,
    Raise,
    Return,
)
from autobatch.llvm import literal

MOST_WAYS = 64
"""Ways through a block, one for each combination of the types that its operations may give."""


def told_apart(known: float | None) -> float | None:
    """A number that is equal to itself, and to no other of its type."""
    return None if type(known) is float and (known != known or known == 0) else known


class Unbound(Exception):
    """A variable is read that has no value: an error of the program's."""


Way = tuple[list[str], dict[str, Value], set[str]]


class BlockWriter(Calling):
    """One block for variables of some types; ``closure`` is the function that it is of, if the
    program has made it. ``ways`` counts the ways through it.
    """

    def __init__(self, unit: Functions, version: Version, key: Key) -> None:
        super().__init__(unit, version, key)
        self.block: Block = version.lowered.blocks[key[0]]
        self.ways = 1
        self.closure: Value | None = None

    def written(self) -> list[str]:
        w = self.w
        w.lines = []
        w.rooms = self.version.rooms[self.key] = []
        w.roots, w.exclusive, w.cost = {}, set(), 0
        w.user = self.version, self.key
        w.begin(self.version.labels[self.key])
        if self.key[0] not in self.version.returning:
            w.emit("br label %given_up")
            return w.lines
        for name, type_ in self.key[1]:
            self.env[name] = self.loaded(name, type_)
        hidden = dict(self.version.params).get(closures.HIDDEN)
        if hidden is not None:
            self.closure = self.loaded(closures.HIDDEN, hidden)
        w.handled = None if self.block.handler is None else self.handled
        begun, self.ways = len(w.lines), 1
        try:
            if self.block.modes:
                refuse("a `with` has no compiled form")
            self.went_on(0)
            self.handle()
        except Refused as refused:
            if self.key[0] in self.version.sure:
                span = self.version.span if w.of_library else self.place.span
                raise refused if refused.span else Refused(refused.why, span) from None
            del w.lines[begun:]  # what is there for failures only
            w.emit("br label %given_up")
        self.version.costs[self.key] = w.cost
        return w.lines

    def went_on(self, first: int) -> None:
        """Write the operations from a place on, and the block's end.

        What follows an operation that may go several ways is written for each.
        """
        w, ops = self.w, self.block.ops
        try:
            for at, op in enumerate(ops[first:], start=first):
                self.place, w.site = op, id(op)
                ways, rest = self.executed(op)
                if len(ways) == 1 and not rest:
                    ((lines, self.env, w.exclusive),) = ways
                    w.lines += lines
                    continue
                self.ways += len(ways) - 1
                if self.ways > MOST_WAYS:
                    refuse("a stretch of it may go too many ways, with other types on each")
                for lines, self.env, w.exclusive in ways:
                    w.lines += lines
                    self.went_on(at + 1)
                w.lines += rest
                return
            self.place = self.block.terminator
            w.site = id(self.place)
            self.terminated()
        except Unbound:
            w.emit("br label %given_up")

    def executed(self, op: Op) -> tuple[list[Way], list[str]]:
        """The ways that an operation may go: what is written, the variables, exclusive roots.

        And what is written after the last of them, where no thread goes on: nothing says what an
        item of a list is that nothing was put in.
        """
        w, before, begun = self.w, self.env, len(self.w.lines)
        ways: list[Way] = []
        self.env = dict(before)
        for _ in execute(self, op):
            ways.append((w.lines[begun:], self.env, set(w.exclusive)))
            del w.lines[begun:]
            self.env = dict(before)
        rest = w.lines[begun:]
        del w.lines[begun:]
        return ways, rest

    # Failures

    def handled(self, kind: type[BaseException]) -> str:
        """Where an exception goes that is raised now, with the variables as they are."""
        label = self.w.fresh()
        self.raising.append((label, kind, dict(self.env), set(self.w.exclusive)))
        return label

    def handle(self) -> None:
        """Write the ways to the block's handler."""
        w, handler = self.w, self.block.handler
        for label, kind, env, exclusive in self.raising:
            assert handler is not None
            w.begin(label)
            self.env, w.exclusive = {**env, handler.out: raised(kind)}, exclusive
            self.go(handler.target)

    def loaded(self, name: str, type_: Type) -> Value:
        leaves: list[str] = []
        places = self.version.places(name, type_)
        for at, kind, leaf in zip(places, machine_of(type_), flat_types(type_), strict=True):
            if isinstance(leaf, Number) and leaf.known is not None:
                leaves.append(literal(leaf.known, kind))
            elif isinstance(leaf, Array):
                leaves.append(at)
                if leaf.own:
                    self.w.exclusive.add(at)
            else:
                leaves.append(self.w.made(f"load {kind}, ptr {at}"))
        known = type_.known if isinstance(type_, Number) else None
        return Value(of_leaves(type_, unmarked), tuple(leaves), known)

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
                self.opens = True
                made = self.outcomes(self.read(callee), [self.read(a) for a in args], shape)
                self.share(args)
                for value in made:
                    self.set(out, value)
                    self.go(target)
                self.opens = False
            case Return(value=value):
                self.give(self.read(value))
            case Raise(exception=exception):
                self.raise_(self.read(exception))
            case Join():
                refuse("calls that wait for each other have no compiled form")

    def raise_(self, exception: Value) -> None:
        kind = kind_of(exception)
        label = None if kind is None or self.block.handler is None else self.handled(kind)
        self.w.emit(f"br label %{label or 'given_up'}")

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
        lives = [n for n in self.version.lowered.live_in[target] if n in self.env]
        boxes = closures.reached((self.env[n].type for n in lives), self.env.get)
        wanted = sorted({*lives, *boxes})
        held = [(n, self.env[n]) for n in wanted if n in self.env and n not in fixed]
        mine = self.version.written
        live = [(name, value if name in mine else common(value)) for name, value in held]
        types = self.kept([value for _, value in live])
        for at, (name, value) in enumerate(live):
            if name in self.version.assigned_once and isinstance(value.type, Number):
                types[at] = replace(value.type, known=told_apart(value.known))
        moves: list[tuple[str, str, int]] = []
        for (name, value), type_ in zip(live, types, strict=True):
            places = self.version.places(name, type_)
            each = zip(places, machine_of(type_), flat_types(type_), value.leaves, strict=True)
            for place, kind, leaf_type, leaf in each:
                if not isinstance(leaf_type, Array):
                    self.w.emit(f"store {kind} {leaf}, ptr {place}")
                elif leaf != place:
                    moves.append((place, leaf, bytes_of(leaf_type)))
        self.moved(moves)
        if target <= self.key[0]:
            self.w.burn()
        key = (target, tuple(zip((name for name, _ in live), types, strict=True)))
        self.w.emit(f"br label %{self.unit.reach(self.version, key)}")

    def kept(self, values: Sequence[Value]) -> list[Type]:
        """The types of values that outlive the block, or the call: whose arrays are their own."""
        w = self.w
        many = Counter(root for value in values for root in roots_of(w, value))

        def types() -> Iterator[Type]:
            for value in values:
                leaves = value.leaves

                def marked(leaf: Type, at: int, leaves: tuple[str, ...] = leaves) -> Type:
                    if not isinstance(leaf, Array):
                        return leaf
                    root = w.root(leaves[at])
                    own = root in w.exclusive and many[root] == 1
                    return replace(leaf, own=own)

                yield of_leaves(value.type, marked)

        return list(types())

    def moved(self, moves: Sequence[tuple[str, str, int]]) -> None:
        """Copy arrays to where variables hold them, all at once: one may lie where another goes."""
        w, targets = self.w, {place for place, _, _ in moves}
        staged: list[tuple[str, str, int]] = []
        for place, leaf, size in moves:
            source = leaf
            if w.root(leaf) in targets and w.root(leaf) != place:
                source = w.room(size)
                w.move(source, leaf, size)
            staged.append((place, source, size))
        for place, source, size in staged:
            w.move(place, source, size)

    def give(self, value: Value) -> None:
        w = self.w
        if closures.is_lent(value.type):
            refuse("a function is returned that reads variables of a call which is not over")
        value = closures.closed(value, self.env.get, None)
        if self.version.is_main:
            refuse_twice(w, value.type)
            value = Value(unsited(value.type), value.leaves, value.known)
            value = self.taken(value)
        (type_,) = self.kept([value])
        if self.version.is_main:
            type_ = of_leaves(type_, handed)
        self.unit.returns(self.version, type_)
        kind, way = self.version.machine_result(), self.version.results.index(type_)
        made = w.made(f"insertvalue {kind} undef, i8 {mark_of(way)}, 0")
        at, far = self.version.first_leaf(way), 0
        for leaf, machine, leaf_type in zip(
            value.leaves, machine_of(type_), flat_types(type_), strict=True
        ):
            size = bytes_of(leaf_type)
            if size:
                w.move(w.made(f"getelementptr i8, ptr %area, i64 {far}"), leaf, size)
                far += size
            else:
                made = w.made(f"insertvalue {kind} {made}, {machine} {leaf}, {at}")
                at += 1
        w.emit(f"ret {kind} {made}")

    def taken(self, value: Value) -> Value:
        """A result for the host: tensors that the program has not made are copied, too."""
        leaves = tuple(
            self.densely(Value(type_, (leaf,))) if isinstance(type_, Rows) else leaf
            for leaf, type_ in zip(value.leaves, flat_types(value.type), strict=True)
        )
        return Value(of_leaves(value.type, owned), leaves)
