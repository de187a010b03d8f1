"""Whether a program can tell two names for one tensor from two tensors of one value.

Threads whose names mean one tensor here and two there are unlike, and run apart: after ``if
accepted: x = proposal`` and ``samples.append(x)``, those that rejected have one tensor in two
places. A program that writes to no tensor in place, but where one name alone knows it (``sole``),
and asks for no tensor's identity, sees nothing of that, so its groups go by values alone.

In: a lowered function, what its names mean, the same for the functions that it calls, and what it
is given. Out: a ``Told``; what is not known tells. The kinds of variables go by all assignments of
a function at once. A method of what is not known counts as a tensor's or a builtin's if it has the
name of one and no module at hand has a method of that name; other objects at hand tell.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import BuiltinFunctionType, FunctionType, ModuleType

import torch
from torch import Tensor, nn

from autobatch.batching.effects import effect_of, is_inplace_name
from autobatch.batching.updates import is_updating
from autobatch.frontend import MISSING
from autobatch.ir.dataflow import op_writes
from autobatch.ir.ops import COMPARE, COMPUTED, INPLACE, SUMS, info
from autobatch.ir.program import Call, CallShape, Function, Op, UnpackShape, Var
from autobatch.source import Span
from autobatch.structure import own_attribute
from autobatch.values.cells import BOX, PACKED, Column, Container, Uniform, Value, View
from autobatch.vm.kept_kinds import INSTANCE, NUMBERS, Kept, is_holder, puts, read
from autobatch.vm.nested import Nested
from autobatch.vm.purity import Known, Names
from autobatch.vm.scoring import SCORES, are_as_they_came, is_distribution
from autobatch.vm.sole import Sole

NO_NAMES: frozenset[str] = frozenset()
HOLDERS = (tuple, list, dict, set, frozenset, slice, range)
LONG = 256
"""How many values a container at hand may have, to be looked through."""
PLAIN = (
    *(Tensor, bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range, slice),
    *(type, ModuleType, FunctionType, BuiltinFunctionType),
    *(torch.dtype, torch.device, torch.layout, torch.Size, torch.memory_format),
)
GIVE_NUMBERS: tuple[object, ...] = (len, int, float, bool, abs, round)
"""Builtins that give a number for numbers; the first four for anything."""
SIZES = {"shape": "size", "ndim": "number"}
"""Attributes of tensors that are numbers, or hold numbers."""
OWN_METHODS = frozenset({"append", "extend", "insert", "pop", "clear", "reverse", "add", "update"})
"""Methods of containers that move what they hold about, and compare none of it."""
TELLING = frozenset(
    {
        *("data_ptr", "storage", "untyped_storage", "numpy", "backward", "set", "share_memory"),
        *("index", "count", "remove", "__array__", "register_hook", "map", "apply", "is_set_to"),
        *("setdefault", "fromkeys", "countOf", "indexOf", "__contains__", "__eq__", "__ne__"),
    }
)
"""Methods whose result or effect depends on which tensor it is."""
COPYING = frozenset({"clone", "new_zeros", "new_ones", "new_full", "new_empty", "new_tensor"})
"""Methods, of tensors alone, that give one in memory of its own."""
FILLING = frozenset(
    {
        *("zeros", "ones", "full", "empty", "rand", "randn", "arange", "linspace", "eye"),
        *("zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like"),
        *("tensor", "stack", "cat"),
    }
)
"""Functions of torch that do."""
LOOKED_AT = frozenset(dir(Tensor)).difference(*map(dir, (list, dict, set)))
"""Methods of tensors that no container has."""
WRITING = frozenset(
    {
        *("add_", "sub_", "mul_", "div_", "neg_", "clamp_", "clamp_min_", "clamp_max_", "copy_"),
        *(
            "fill_",
            "zero_",
            "masked_fill_",
            "scatter_",
            "scatter_add_",
            "index_add_",
            "index_fill_",
        ),
    }
)
"""Methods of tensors that write to all or some of their elements, and do nothing else."""
HARMLESS = frozenset({"append", "extend", "update", "store_box", "clear_box", "delitem"})
"""Operations that write to what holds values, not to tensors."""

KEYED: dict[str, Callable[[tuple[Var, ...]], tuple[Var, ...]]] = {
    "set": lambda args: args,
    "to_set": lambda args: args,
    "dict": lambda args: args[::2],
}
"""Displays that hash, each with what."""
PAIR = UnpackShape(2)
COUNTED = "counted"
"""What ``enumerate`` gives: a number, and something."""
NEXT = {"range": "number", "size": "number", "enumerate": COUNTED, "unseen": "unseen"}
"""What going through something of a kind gives."""
COMPARED = ("list", "dict", "set", "tuple")
"""Kinds that hold others."""
SEQUENCES = {"add": ({"list"},), "mul": ({"list", "number"},)}
"""Kinds of operands of which an operator makes a list."""
HASHING: tuple[object, ...] = (dict, set, frozenset)
COMPARING: tuple[object, ...] = (
    *(operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge),
    operator.contains,
)


@dataclass(frozen=True, slots=True)
class Told:
    """Whether a program ``tells``; the methods that it ``asks`` of what is not known, by name, and
    the names that the modules at hand give to what is theirs. ``sole`` is where it writes to
    tensors that only one name knows.
    """

    tells: bool
    asks: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()
    sole: frozenset[Span] = frozenset()


TELLS = Told(True)
LEAST = Told(False)
"""Of a function that is being looked at, and of one that tells nothing."""


@dataclass(eq=False, repr=False)
class Sight:
    """One function. ``callee`` judges what is known to be called; ``is_opaque`` says whether a
    method of that name is a tensor's or a builtin's.
    """

    known: Known
    callee: Callable[[object], Told]
    is_opaque: Callable[[str], bool]
    kinds: dict[Var, str] = field(default_factory=dict)
    asks: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    sole: set[Span] = field(default_factory=set)
    unseen: frozenset[int] = frozenset()
    """Operations that write to tensors which only one name knows."""

    def told(self) -> Told:
        function = self.known.function
        self.kinds = kinds_of(function, self.known)
        self.unseen = Sole(function, self.makes, self.keeps, self.written).writes()
        ops = (op for block in function.blocks for op in block.ops)
        calls = (block.terminator for block in function.blocks if type(block.terminator) is Call)
        tells = (
            any(map(self.tells_op, ops))
            or any(self.tells_call(call.callee, call.args, call.shape) for call in calls)
            or not self.knows(self.known.names.receiver)
        )
        if tells:
            return TELLS
        return Told(False, frozenset(self.asks), frozenset(self.named), frozenset(self.sole))

    def knows(self, value: object) -> bool:
        """Whether a value that is at hand has no code of its own but what is noted."""
        names = names_of(value)
        self.named |= names or set()
        return names is not None

    def tells_op(self, op: Op) -> bool:
        name, kind = op.name, self.kind
        if id(op) in self.unseen:
            method = self.known.method(op.args[0])
            self.asks |= {method[1]} if name == "call" and method is not None else set()
            self.sole.add(replace(op.span, caller=None))
            return False
        if name == "load_free" and op.attr not in self.known.names.closure:
            return False  # a variable of the program's, which may hold what its function has
        if name in ("global", "load_free"):
            found = self.known.value(op.outs[0])
            return found is MISSING or not self.knows(found)
        if name == "getattr" and op.attr in SIZES:
            self.asks.add(op.attr)
        if name in INPLACE:
            return kind(op.args[0]) == "" or kind(op.outs[0]) == ""
        if name in ("is", "is_not"):
            return not any(kind(arg) in ("number", "constant") for arg in op.args)
        if name in ("in", "not_in"):
            return kind(op.args[0]) not in ("number", "constant")
        if name == "setitem":
            return kind(op.args[0]) != "list" and not self.is_entry(op.args[0], op.args[1])
        if name == "setattr":
            self.named |= {op.attr}
            return kind(op.args[0]) != INSTANCE
        if name in KEYED:
            return not self.are_keys(KEYED[name](op.args))
        if name in COMPARE:
            return self.compares(op.args)
        if name == "call":
            return self.tells_call(op.args[0], op.args[1:], op.attr)
        effect = info(name).effect
        return effect in ("writes", "unknown", "captures", "calls") and name not in HARMLESS

    def is_entry(self, name: Var, key: Var) -> bool:
        """Whether it is an entry of a dict, under a key that is no tensor."""
        return self.kind(name) == "dict" and self.are_keys([key])

    def are_keys(self, names: Iterable[Var]) -> bool:
        """Whether none is a tensor, whose hash is its identity."""
        return all(self.kind(name) in ("number", "constant") for name in names)

    def compares(self, operands: Iterable[Var]) -> bool:
        """Whether what they hold is compared, which is equal if it is the same."""
        return any(self.kind(name) in (*COMPARED, INSTANCE) for name in operands)

    def kind(self, name: Var) -> str:
        return self.kinds.get(name, "")

    def tells_call(self, callee: Var, args: tuple[Var, ...], shape: CallShape) -> bool:
        if "out" in shape.keywords:
            return True
        found = callee_of(self.known, callee)
        if found is not MISSING:
            hashes = any(found is each for each in HASHING) and len(shape.positional) > 0
            compares = any(found is each for each in COMPARING) and self.compares(args)
            told = self.callee(found)
            self.asks |= told.asks
            self.named |= told.named
            self.sole |= told.sole
            tells = told.tells or self.tells_key(args, shape) or is_told_to_write(found, shape)
            return hashes or compares or tells
        method = self.known.method(callee)
        if method is None:
            return True
        receiver, name = method
        self.asks.add(name)
        if name in OWN_METHODS:
            return name == "add" and self.kind(receiver) == "set" and not self.are_keys(args)
        is_quiet = name in SCORES or self.is_opaque(name)
        return is_inplace_name(name) or name in TELLING or not is_quiet

    def makes(self, op: Op) -> bool:
        """Whether a call gives a tensor in memory of its own, whatever it is given."""
        if "out" in op.attr.keywords or None in op.attr.keywords:
            return False
        found, method = self.known.value(op.args[0]), self.known.method(op.args[0])
        if found is MISSING:
            return method is not None and method[1] in COPYING
        name = own_attribute(found, "__name__", "")
        return name in COPYING | FILLING and effect_of(found) in ("torch", "draw")

    def keeps(self, op: Op) -> bool:
        """Whether a call may put what it is given somewhere else than into its result."""
        found, method = self.known.value(op.args[0]), self.known.method(op.args[0])
        if found is MISSING:
            return method is None or method[1] not in LOOKED_AT
        return effect_of(found) not in ("torch", "host") or tells_known(found)

    def written(self, op: Op) -> Var | None:
        """The tensor that a call of its method writes to in place."""
        method = self.known.method(op.args[0])
        if method is None or self.known.value(op.args[0]) is not MISSING:
            return None
        return method[0] if is_inplace_name(method[1]) and method[1] in WRITING else None

    def tells_key(self, args: tuple[Var, ...], shape: CallShape) -> bool:
        """Whether the function that a call is given as ``key=`` may tell."""
        if "key" not in shape.keywords:
            return False
        key = args[len(shape.positional) + shape.keywords.index("key")]
        return self.tells_call(key, (), CallShape(()))


def callee_of(known: Known, name: Var) -> object:
    """What a variable names that is called, if that is known: a function defined here, too."""
    found, definition = known.value(name), known.definitions.get(name)
    while found is MISSING and definition is not None and definition.name == "copy":
        definition = known.definitions.get(definition.args[0])
    if found is MISSING and definition is not None and definition.name == "function":
        return Nested(definition.attr, known.names.namespace)
    return found


@dataclass(slots=True, eq=False, repr=False)
class Blindness:
    """Whether a run is blind, found out when that is first asked.

    ``told`` judges its first function, by what its ``names`` mean; ``given`` are the objects that
    this is given besides tensors and numbers, None where they cannot be told.
    """

    told: Callable[[Names], Told]
    names: Callable[[], Names]
    given: list[object] | None
    found: bool | None = None
    sole: frozenset[Span] = frozenset()

    def is_sole(self, span: Span | None) -> bool:
        """Whether what is written there is known by one name alone."""
        return span is not None and replace(span, caller=None) in self.sole

    def __call__(self) -> bool:
        if self.found is None:
            self.found = self.given is not None and self.is_blind(self.given)
        return self.found

    def is_blind(self, given: list[object]) -> bool:
        named = list(map(names_of, given))
        told = self.told(self.names())
        self.sole = told.sole
        if not told.asks.isdisjoint(SCORES) and not are_as_they_came():
            return False
        return not told.tells and all(
            names is not None and told.asks.isdisjoint(names) for names in (told.named, *named)
        )


def objects_in(values: Iterable[Value]) -> list[object] | None:
    """The objects in some cells' values besides columns; None where a thread has its own."""
    found: list[object] = []
    for value in values:
        if type(value) is Uniform:
            found.append(value.obj)
        elif type(value) is View:
            continue
        elif type(value) is Container and (value.type in HOLDERS or value.type in (PACKED, BOX)):
            inner = objects_in(child.value for child in value.children())
            if inner is None:
                return None
            found += inner
        elif type(value) is not Column:
            return None
    return found


def names_of(value: object) -> frozenset[str] | None:
    """The names that modules give to what is theirs, of a value; None for other objects."""
    if value is MISSING or isinstance(value, PLAIN) or type(value) is Nested:
        return NO_NAMES
    if isinstance(value, nn.Module):
        return NO_NAMES.union(*map(names_in, value.modules()))
    if is_distribution(value):
        return names_of(vars(value))
    if type(value) in HOLDERS and len(value) <= LONG:  # type: ignore[arg-type]
        parts = value.values() if type(value) is dict else value
        found = [names_of(part) for part in parts]  # type: ignore[attr-defined]
        return None if None in found else NO_NAMES.union(*(names for names in found if names))
    return NO_NAMES if effect_of(value) in (*QUIET_EFFECTS, "program") else None


def names_in(module: nn.Module) -> frozenset[str]:
    tables = (module._modules, module._parameters, module._buffers)
    own = {*vars(module)}.union(*(table.keys() for table in tables))  # not all are dicts (jit)
    kinds = [kind for kind in type(module).__mro__ if not kind.__module__.startswith("torch.")]
    return frozenset(own.union(*(vars(kind) for kind in kinds if kind is not object)))


def kinds_of(function: Function, known: Known) -> dict[Var, str]:
    """The kinds of variables that never are more: ``number``, ``constant``, ``range``, ``size``, …

    Of assignments in a circle one is enough to begin with: the least that all of them bear out.
    What operands not yet ``unseen`` may still make is ``unseen``, never ``""``: kinds only grow, so
    that this ends.
    """
    found: dict[Var, str] = {}
    ops = [op for block in function.blocks for op in block.ops]
    stores = [op for b in function.blocks for op in b.ops if op.name == "store_box"]
    others = {param.name for param in function.params}
    calls = [op_of(b.terminator) for b in function.blocks if type(b.terminator) is Call]
    others |= {op.outs[0] for op in calls if not is_holder(known.value(op.args[0]))}
    kept: dict[Kept, str] = {}
    put: dict[Kept, set[str]] = {}
    while True:
        before = dict(found), dict(kept)
        now: dict[Var, set[str]] = {}
        for op in (*ops, *calls):
            kinds = [found.get(arg, "unseen") for arg in op.args]
            whole = [] if not kinds else read(op, kinds[0], known.definitions, kept)
            given = [joined(set(whole))] if whole else results(op, kinds, known)
            for out, kind in zip(op_writes(op), given, strict=False):
                now.setdefault(out, set()).add(kind)
            for slot, kind in kept_by(op, kinds, found, known):
                put.setdefault(slot, set()).add(kind)
        kept = {slot: joined(kinds) for slot, kinds in put.items()}
        for op in stores:  # nobody else can: what ``nonlocal`` assigns is held in a list
            now.setdefault(op.args[0], set()).add(found.get(op.args[1], "unseen"))
        found = {name: joined(kinds) for name, kinds in now.items()}
        found.update(dict.fromkeys(others, ""))
        if (found, kept) == before:
            return {name: kind for name, kind in found.items() if kind != "unseen"}


def op_of(call: Call) -> Op:
    """A call that ends a block, as one that does not."""
    return Op("call", (call.out,), (call.callee, *call.args), call.shape, call.span)


def kept_by(
    op: Op, kinds: Sequence[str], found: Mapping[Var, str], known: Known
) -> Iterator[tuple[Kept, str]]:
    """What an operation puts into instances and dicts."""
    callee: object = MISSING
    method = None
    if op.name == "call":
        callee, asked = known.value(op.args[0]), known.method(op.args[0])
        method = None if asked is None else (found.get(asked[0], "unseen"), asked[1])
    return puts(op, kinds, known.definitions, callee, method)


def joined(kinds: set[str]) -> str:
    seen = kinds - {"unseen"}
    return "unseen" if not seen else seen.pop() if len(seen) == 1 else ""


def results(op: Op, kinds: list[str], known: Known) -> Iterator[str]:
    """The kinds of what an operation makes of operands of some kinds."""
    name = op.name
    if name == "box":  # goes by what is in it
        yield kinds[0] if kinds else "unseen"
    elif name in ("load_box", "load_outer_box"):
        yield kinds[0]
    elif name == "const":
        yield "number" if type(op.attr) in NUMBERS else "constant"
    elif name in COMPARED:
        yield name
    elif name in ("not", "truth", "is", "is_not", "in", "not_in"):
        yield "number"
    elif name in ("copy", "iter", "sum_left", "sum_whole"):
        yield kinds[0]
    elif name in SUMS:
        yield "number"
    elif name == "getattr" and kinds[0] == "unseen":
        yield "unseen"
    elif name == "getattr" and op.attr in SIZES:
        yield SIZES[op.attr]
    elif name in ("getitem", "unpack") and kinds[0] in ("size", "unseen"):
        yield from ("number" if kinds[0] == "size" else "unseen" for _ in op.outs)
    elif name == "unpack" and kinds[0] == COUNTED and op.attr == PAIR:
        yield from ("number", "")
    elif name == "select":
        yield joined(set(kinds[1:]))
    elif name == "next":
        yield NEXT.get(kinds[0], "")
        yield "number"
    elif name in INPLACE and kinds[0] in ("list", "dict", "set", "unseen"):
        yield kinds[0]
    elif name in SEQUENCES and set(kinds) in SEQUENCES[name]:
        yield "list"
    elif name in SEQUENCES and "unseen" in kinds and "" not in kinds:
        yield "unseen"
    elif name in COMPUTED:
        rest = set(kinds)
        yield "number" if rest == {"number"} else "unseen" if rest <= {"number", "unseen"} else ""
    elif name == "call":
        yield called(known.value(op.args[0]), known.method(op.args[0]), kinds[1:])
    else:
        for _ in op.outs:
            yield ""


def called(callee: object, method: tuple[Var, str] | None, kinds: list[str]) -> str:
    if callee is range or callee is enumerate:
        return callee.__name__
    for each in (list, dict, set):
        if callee is each:
            return each.__name__
    if is_holder(callee):
        return INSTANCE
    if callee is sorted:
        return "list"
    if any(callee is each for each in GIVE_NUMBERS):
        exact = any(callee is each for each in GIVE_NUMBERS[:4])
        if exact or set(kinds) == {"number"}:
            return "number"
        return "unseen" if "unseen" in kinds else ""
    return "number" if callee is MISSING and method is not None and method[1] == "item" else ""


QUIET_EFFECTS = ("torch", "host", "draw")


def is_told_to_write(callee: object, shape: CallShape) -> bool:
    """Whether a call may say ``inplace=True``, or ``out=``."""
    if "inplace" in shape.keywords:
        return True
    if None in shape.keywords and effect_of(callee) != "program":
        return True
    function = own_attribute(callee, "__func__", callee)
    if not isinstance(function, FunctionType):
        return False
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    if "inplace" not in names:
        return False
    return not shape.is_plain or len(shape.positional) > names.index("inplace")


def tells_known(callee: object) -> bool:
    """Whether what runs no code of the program's can tell."""
    if isinstance(callee, nn.Module):
        return any(getattr(part, "inplace", False) for part in callee.modules())
    name = own_attribute(callee, "__name__", "")
    if callee is id or is_updating(callee) or name in TELLING or is_inplace_name(name):
        return True
    return callee is not print and effect_of(callee) not in QUIET_EFFECTS
