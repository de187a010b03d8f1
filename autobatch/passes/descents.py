"""Descents: from a branch on objects through the blocks behind it, which only look at more of them
and fork calls. Each thread can go through these by itself, as plain Python.

In: the blocks of a function, the start or the end of one that ends in a branch, and what variables
hold there. Out: the ways that threads can go, in the order in which they are tried, and a function
in Python that tells which of them each thread goes, and what it finds on it:

    part(k, known, tree, %4) -> one (rows, what is found) for each way

A way ends before the first block that does anything else, that is met again, or that a join, a
return or a call ends. ``attribute`` and ``truth`` are asked, for the class of each object, whether
to read an attribute and to ask for its truth runs no code; ``known`` are sets that they put such
classes in, which need not be asked for again while no code has run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Literal

from autobatch.ir.program import Block, Branch, Jump, Label, Op, Var

Kind = Literal["objects", "none", "other"]
"""What a variable holds: an object of each thread's own, None for all, or anything else."""
MOST_WAYS = 16
RUN = frozenset({"const", "copy", "fork", "getattr", "global", "tuple"})
"""What may be done to what is no object."""
INDENT = "    "
Steps = tuple[tuple[Op, int | None], ...]


@dataclass(frozen=True, slots=True)
class Way:
    """``steps`` are the operations on it, each with the number of what it finds, None for those
    that are to be run once for all its threads. ``last`` is the last block on it, ``end`` the one
    that it ends before. ``begins`` are the variables that hold objects at its beginning, with the
    numbers of these, ``found`` the numbers of what is wanted, in the order in which ``part`` gives
    it.
    """

    steps: Steps
    asked: tuple[Op | Branch, ...]
    last: Label
    end: Label
    begins: tuple[tuple[Var, int], ...]
    found: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Descent:
    """``forks`` are all on its ways; ``objects`` are the variables that ``part``, whose text this
    is, gets last, ``sets`` how many it is given to keep classes in.
    """

    ways: tuple[Way, ...]
    forks: tuple[Op, ...]
    objects: tuple[Var, ...]
    sets: int
    text: str


class TooManyWays(Exception):
    """Threads may part too often."""


def descent_from(
    blocks: Sequence[Block],
    live: Sequence[Set[Var]],
    start: Label,
    whole: bool,
    kinds: Mapping[Var, Kind],
) -> Descent | None:
    """The descent through the ``whole`` of a block, or from its end; None where nothing is forked.

    ``live`` are the variables that live at each block.
    """
    branch = blocks[start].terminator
    if not isinstance(branch, Branch):
        return None
    writer = Writer(blocks, live)
    objects = tuple(sorted(name for name, kind in kinds.items() if kind == "objects"))
    values = {name: writer.new() for name in objects}
    writer.first = len(objects)
    nones = frozenset(name for name, kind in kinds.items() if kind == "none")
    state = State(values, nones, dict(values), start, frozenset())
    try:
        if whole:
            writer.block(start, state, 1)
        elif branch.condition in values:
            writer.branch(branch, replace(state, passed=frozenset({start})), 1)
    except TooManyWays:
        return None
    forks = [op for way in writer.ways for op, _ in way.steps if op.name == "fork"]
    if not forks:
        return None
    sets, text = writer.text(len(objects))
    return Descent(tuple(writer.ways), unique(forks), objects, sets, text)


@dataclass(frozen=True, slots=True)
class State:
    """On a way: ``values`` numbers the objects that variables hold, ``nones`` are variables that
    hold None for all threads, ``passed`` the blocks behind, ``last`` the last of them; ``reads``
    numbers the attributes that have been read of objects.
    """

    values: Mapping[Var, int]
    nones: frozenset[Var]
    begins: Mapping[Var, int]
    last: Label
    passed: frozenset[Label]
    reads: Mapping[tuple[int, str], int] = field(default_factory=dict)
    steps: Steps = ()
    asked: tuple[Op | Branch, ...] = ()


@dataclass(eq=False, repr=False)
class Writer:
    """Goes all ways, and writes down what tells which one a thread goes.

    ``begun`` are the attributes of the ``first`` objects that it reads, which all are looked at
    before; ``kept`` the names of the sets of classes of others.
    """

    blocks: Sequence[Block]
    live: Sequence[Set[Var]]
    ways: list[Way] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    begun: list[tuple[int, str]] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    first: int = 0
    count: int = 0

    def new(self) -> int:
        self.count += 1
        return self.count - 1

    def line(self, depth: int, text: str) -> None:
        self.lines.append(INDENT * (depth + 1) + text)

    def branch(self, branch: Branch, state: State, depth: int) -> None:
        """Either side of a branch on an object."""
        value = state.values[branch.condition]
        state = replace(state, asked=(*state.asked, branch))
        self.line(depth, f"if type(v{value}) not in plain: truth(plain, type(v{value}))")
        self.line(depth, f"if v{value}:")
        self.block(branch.then, state, depth + 1)
        self.line(depth, "else:")
        self.block(branch.otherwise, state, depth + 1)

    def block(self, label: Label, state: State, depth: int) -> None:
        """The block, if it can be gone through, and what comes behind; else the way's end."""
        block = self.blocks[label]
        plain = not block.modes and block.handler is None and block.converted is None
        if label in state.passed or not plain:
            self.end(label, state, depth)
            return
        lines = len(self.lines)
        after: State | None = replace(state, last=label, passed=state.passed | {label})
        for op in block.ops:
            assert after is not None
            after = self.after(op, block, after, depth)
            if after is None:
                break
        match block.terminator:
            case Jump(target=target) if after is not None:
                self.block(target, after, depth)
            case Branch(condition=condition) as branch if after and condition in after.values:
                self.branch(branch, after, depth)
            case _:
                del self.lines[lines:]
                self.end(label, state, depth)

    def after(self, op: Op, block: Block, state: State, depth: int) -> State | None:
        """The state after an operation; None where it is none that can be gone through."""
        values, nones, reads = dict(state.values), state.nones, dict(state.reads)
        held = [values[arg] for arg in op.args if arg in values]
        number: int | None = None
        if op.name == "copy" and held:
            values[op.outs[0]] = held[0]
            number = held[0]
        elif op.name == "getattr" and held and not is_only_called(op, block):
            number = reads.get((held[0], op.attr))
            if number is None:
                number = reads[held[0], op.attr] = self.read(held[0], op.attr, depth)
            values[op.outs[0]] = number
        elif op.name in ("is", "is_not") and len(held) == 1 and nones.intersection(op.args):
            number = values[op.outs[0]] = self.new()
            self.line(depth, f"v{number} = v{held[0]} {op.name.replace('_', ' ')} None")
        elif op.name in RUN or (op.name == "defer" and op.attr[0] == "unpack" and not held):
            for out in op.outs:
                values.pop(out, None)
        else:
            return None
        nones = nones.difference(op.outs)
        if (op.name == "const" and op.attr is None) or (
            op.name == "copy" and op.args[0] in state.nones
        ):
            nones |= frozenset(op.outs)
        asked = (*state.asked, op) if op.name == "getattr" and number is not None else state.asked
        steps = (*state.steps, (op, number))
        return replace(
            state,
            values=values,
            nones=nones,
            reads=reads,
            steps=steps,
            asked=asked,
        )

    def read(self, held: int, name: str, depth: int) -> int:
        """Read an attribute of an object; the number of what it is."""
        if held < self.first:
            self.begun.append((held, name))
        else:
            kept = f"kept_{len(self.kept)}"
            self.kept.append(kept)
            self.line(depth, f"if type(v{held}) not in {kept}:")
            self.line(depth + 1, f"attribute({kept}, type(v{held}), {name!r})")
        number = self.new()
        self.line(depth, f"v{number} = v{held}.{name}")
        return number

    def end(self, label: Label, state: State, depth: int) -> None:
        """A way that ends before a block; what lives there is wanted."""
        if len(self.ways) == MOST_WAYS:
            raise TooManyWays
        steps, wanted = needed(state.steps, self.live[label])
        begins = tuple((name, at) for name, at in state.begins.items() if name in wanted)
        looks = {at for op, at in steps if at is not None and op.name != "copy"}
        found = tuple(sorted(looks.union(at for _, at in begins)))
        place = len(self.ways)
        self.line(depth, f"r{place}(i)")
        for number in found:
            self.line(depth, f"f{place}_{number}(v{number})")
        self.ways.append(Way(steps, state.asked, state.last, label, begins, found))

    def text(self, objects: int) -> tuple[int, str]:
        """How many sets the function gets that has been written, and its text."""
        names = [f"o{number}" for number in range(objects)]
        begun = [(f"begun_{at}", *read) for at, read in enumerate(dict.fromkeys(self.begun))]
        sets = ["plain", *self.kept, *(kept for kept, _, _ in begun)]
        head = [f"def part({', '.join(['k', 'known', *names])}):"]
        head.append(f"{INDENT}{''.join(f'{name}, ' for name in sets)}= known")
        head += [
            f"{INDENT}for kind in set(map(type, o{number})) - {kept}: "
            f"attribute({kept}, kind, {name!r})"
            for kept, number, name in begun
        ]
        gives = []
        for place, way in enumerate(self.ways):
            lists = [f"rows{place}", *(f"found{place}_{number}" for number in way.found)]
            puts = [f"r{place}", *(f"f{place}_{number}" for number in way.found)]
            for name, put in zip(lists, puts, strict=True):
                head.append(f"{INDENT}{name} = []; {put} = {name}.append")
            gives.append(f"({lists[0]}, ({''.join(f'{name}, ' for name in lists[1:])}))")
        items = ", ".join(f"v{number}" for number in range(objects))
        head.append(f"{INDENT}for i, {items} in zip(range(k), {', '.join(names)}):")
        last = f"{INDENT}return ({''.join(g + ', ' for g in gives)})"
        return len(sets), "\n".join([*head, *self.lines, last])


def is_only_called(op: Op, block: Block) -> bool:
    """Whether an attribute is nothing but what a block's fork calls: a method, most likely."""
    (out,) = op.outs
    readers = [other for other in block.ops if out in other.args]
    return [(other.name, other.args.index(out)) for other in readers] == [("fork", 0)]


def needed(steps: Steps, live: Set[Var]) -> tuple[Steps, Set[Var]]:
    """The steps of which something is wanted where these variables live, and what they want."""
    kept: list[tuple[Op, int | None]] = []
    wanted = set(live)
    for op, number in reversed(steps):
        if op.name in ("fork", "defer") or wanted.intersection(op.outs):
            kept.append((op, number))
            wanted = wanted.difference(op.outs).union(op.args)
    return tuple(reversed(kept)), wanted


def unique(ops: Sequence[Op]) -> tuple[Op, ...]:
    return tuple({id(op): op for op in ops}.values())
