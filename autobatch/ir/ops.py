"""The table of operations that a block may hold: what each is, and what may be done with it.

An operation means what the Python expression named in ``doc`` means for one example. ``OpInfo``
declares its traits; every set of operations that a pass or an engine goes by is taken from the
table. What is not declared is taken to be the worst: an operation without traits, or one that is
not in the table (``info``), is in none of the sets. ``ir.reference`` makes a page of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Effect = Literal["pure", "reads", "binds", "advances", "writes", "captures", "calls", "unknown"]
Result = Literal["value", "fresh", "display", "operand", "within", "inplace", "call", "outer"]
Stretch = Literal["batched", "host", "never"]


@dataclass(frozen=True, slots=True)
class OpInfo:
    """One operation: its form, and its traits.

    ``arity`` is the number of operands, None if it varies; ``attr`` says what ``Op.attr`` is;
    its first word is the form that it has. ``outs`` is the number of variables that it assigns, -1
    if its attribute tells.

    ``effect``: ``"pure"``, though it may fail; ``"reads"`` what others may write in the meantime;
    ``"binds"`` a variable of its own frame, or the context of an exception on its way;
    ``"advances"`` its operand, an iterator; ``"writes"``
    its first operand; ``"captures"`` a variable for a function to write; ``"calls"``: what its
    callee does; ``"unknown"``: others may see it.

    ``result``: what its outs name: a ``"value"`` that cannot be written; something ``"fresh"``; a
    ``"display"``, which is fresh and holds its operands; an ``"operand"``; an operand or what is
    ``"within"`` one; the first operand or something fresh (``"inplace"``); what a ``"call"`` gives;
    something that may have existed before (``"outer"``).

    ``stretch``: a recording may hold it (``"batched"``), or it may run on the ``"host"`` while
    recordings are told apart. ``safe``: on numbers and tensors it fails on no value and has no
    effect (on numbers, if it is a write in place), so it may run for a thread that should not run
    it; where Python's numbers would fail or
    not fit (``1 / 0``), the recording of one has a check. ``commutative``: on numbers and tensors
    its operands may be swapped. ``moves``: it hands operands on without looking at them. ``free``:
    it takes no kernel. ``framed``: it means what it means in the frame of its own function.
    """

    doc: str
    arity: int | None
    attr: str = ""
    outs: int = 1
    effect: Effect = "unknown"
    result: Result = "outer"
    stretch: Stretch = "never"
    safe: bool = False
    commutative: bool = False
    moves: bool = False
    free: bool = False
    framed: bool = False


UNKNOWN = OpInfo("an operation that is not in the table", None)

UNARY = {"neg": "-x", "pos": "+x", "invert": "~x", "not": "not x"}
BINARY = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "matmul": "@",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "lshift": "<<",
    "rshift": ">>",
    "and": "&",
    "or": "|",
    "xor": "^",
}
COMPARE = {
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
    "gt": ">",
    "ge": ">=",
    "is": "is",
    "is_not": "is not",
    "in": "in",
    "not_in": "not in",
}

_UNSAFE = ("invert", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "in", "not_in")
_COMMUTATIVE = ("add", "mul", "and", "or", "xor", "eq", "ne", "is", "is_not")
_TESTS = ("not", "is", "is_not", "in", "not_in")


def _computed(doc: str, name: str, arity: int) -> OpInfo:
    """An operator of Python's that makes a new value."""
    return OpInfo(
        doc,
        arity,
        effect="pure",
        result="value" if name in _TESTS else "fresh",
        stretch="batched",
        safe=name not in _UNSAFE,
        commutative=name in _COMMUTATIVE,
    )


def _inplace(sign: str, name: str) -> OpInfo:
    return OpInfo(
        f"x {sign}= y",
        2,
        effect="writes",
        result="inplace",
        stretch="batched",
        safe=name not in _UNSAFE,
    )


OPS: dict[str, OpInfo] = {
    **{name: _computed(doc, name, 1) for name, doc in UNARY.items()},
    **{name: _computed(f"x {sign} y", name, 2) for name, sign in BINARY.items()},
    **{f"i{name}": _inplace(sign, name) for name, sign in BINARY.items()},
    **{name: _computed(f"x {sign} y", name, 2) for name, sign in COMPARE.items()},
    "const": OpInfo(
        "a literal, or an object of the program's",
        0,
        "value: a literal, or an object",
        effect="pure",
        result="value",
        stretch="host",
        safe=True,
        free=True,
    ),
    "global": OpInfo(
        "a global or builtin name of the function's module",
        0,
        "name",
        effect="reads",
        stretch="host",
        free=True,
    ),
    "load_free": OpInfo(
        "a captured variable of an enclosing function",
        0,
        "name",
        effect="reads",
        stretch="host",
        framed=True,
    ),
    "copy": OpInfo(
        "y = x: a second name for one value",
        1,
        effect="pure",
        result="operand",
        stretch="batched",
        safe=True,
        moves=True,
        free=True,
    ),
    "load_outer": OpInfo(
        "a variable of the function, as a comprehension reads it that is a scope of its own",
        1,
        "name of the variable",
        effect="pure",
        result="operand",
        stretch="batched",
        moves=True,
        free=True,
    ),
    "delete": OpInfo(
        "del x: the attr names the variable", 0, "name", 0, effect="binds", framed=True
    ),
    "box": OpInfo(
        "a new box for a captured variable; empty without operand",
        None,
        effect="pure",
        result="display",
        framed=True,
    ),
    "load_box": OpInfo(
        "the value in a box", 1, "name of the variable", effect="reads", result="within"
    ),
    "load_outer_box": OpInfo(
        "the value in a box, as a comprehension reads it that is a scope of its own",
        1,
        "name of the variable",
        effect="reads",
        result="within",
    ),
    "store_box": OpInfo("box, value: set the box", 2, outs=0, effect="writes"),
    "clear_box": OpInfo(
        "del x of a captured variable: empties its box",
        1,
        "name of the variable",
        0,
        effect="writes",
    ),
    "free_box": OpInfo(
        "the box of a captured variable, to hand on to a nested function",
        0,
        "name",
        effect="captures",
        framed=True,
    ),
    "getattr": OpInfo(
        "x.name", 1, "name", effect="reads", result="within", stretch="batched", free=True
    ),
    "setattr": OpInfo("x.name = value (operands x, value)", 2, "name", 0, effect="writes"),
    "delattr": OpInfo("del x.name", 1, "name", 0, effect="writes"),
    "getitem": OpInfo("x[i]", 2, effect="reads", result="within", stretch="batched"),
    "setitem": OpInfo(
        "x[i] = value (operands x, i, value)", 3, outs=0, effect="writes", stretch="batched"
    ),
    "delitem": OpInfo("del x[i]", 2, outs=0, effect="writes"),
    "slice": OpInfo("start:stop:step", 3, effect="pure", result="display", stretch="batched"),
    "tuple": OpInfo(
        "(a, b, …)", None, effect="pure", result="display", stretch="batched", moves=True
    ),
    "list": OpInfo(
        "[a, b, …]", None, effect="pure", result="display", stretch="batched", moves=True
    ),
    "set": OpInfo("{a, b, …}", None, effect="pure", result="display"),
    "dict": OpInfo(
        "{k: v, …}: operands k, v, k, v, …",
        None,
        effect="pure",
        result="display",
        stretch="batched",
    ),
    "extend": OpInfo(
        "list display [*x]: extends the fresh list, operands list, iterable",
        2,
        outs=0,
        effect="writes",
    ),
    "update": OpInfo(
        "dict display {**x}: updates the fresh dict, operands dict, mapping",
        2,
        outs=0,
        effect="writes",
    ),
    "append": OpInfo(
        "appends to a fresh list (comprehension), operands list, value",
        2,
        outs=0,
        effect="writes",
        moves=True,
    ),
    "to_tuple": OpInfo(
        "tuple of a fresh list", 1, effect="reads", result="within", stretch="batched"
    ),
    "to_set": OpInfo("set of a fresh list", 1, effect="reads", result="within"),
    "format": OpInfo(
        "f'{x!r:spec}': operands x, spec",
        2,
        "conversion: '', 's', 'r' or 'a'",
        effect="reads",
        result="value",
        stretch="host",
    ),
    "join": OpInfo(
        "the parts of an f-string, joined", None, effect="pure", result="value", stretch="host"
    ),
    "unpack": OpInfo(
        "a, *b, c = x",
        1,
        "UnpackShape",
        -1,
        effect="reads",
        result="within",
        stretch="batched",
    ),
    "iter": OpInfo("an iterator over x", 1, effect="reads", result="within"),
    "next": OpInfo(
        "item, more = next(x): item is undefined where more is False",
        1,
        outs=2,
        effect="advances",
        result="within",
    ),
    "call": OpInfo(
        "a call that stays within its block: operands callee, then arguments",
        None,
        "CallShape",
        effect="calls",
        result="call",
        stretch="batched",
    ),
    "fork": OpInfo(
        "a call of a pure function that runs at the next join, with the others that are forked "
        "until then: operands callee, then arguments",
        None,
        "CallShape",
        effect="calls",
        result="call",
        framed=True,
    ),
    "defer": OpInfo(
        "an operation on what forked calls have yet to give: it runs at the next join, after "
        "them; operands and outs are its own",
        None,
        "operation: (name, attr)",
        -1,
        framed=True,
    ),
    "function": OpInfo(
        "a nested function or lambda: operands are its captured boxes in the order of "
        "``free``, then its defaults in the order of params that have one",
        None,
        "Function",
        effect="pure",
        result="display",
        framed=True,
    ),
    "import": OpInfo("import: a module", 0, "module, level, names: as __import__ takes them"),
    "import_from": OpInfo("from module import name", 1, "name", effect="reads", stretch="host"),
    "truth": OpInfo(
        "bool(x) as a branch takes it",
        1,
        effect="pure",
        result="value",
        stretch="batched",
        safe=True,
        free=True,
    ),
    "select": OpInfo(
        "a where the truth value is true, else b (operands truth value, a, b)",
        3,
        effect="pure",
        result="operand",
        stretch="batched",
        safe=True,
        free=True,
    ),
    "sum_begun": OpInfo(
        "what sum has lost before its first addition (operand start, no string; see ir.sums)",
        1,
        effect="pure",
        result="value",
        stretch="batched",
        safe=True,
        free=True,
    ),
    "sum_left": OpInfo(
        "what sum adds an item to (operands total, lost, item)",
        3,
        effect="pure",
        result="operand",
        stretch="batched",
        safe=True,
        free=True,
    ),
    "sum_lost": OpInfo(
        "what sum has lost after an addition (operands lost, total, item, total + item)",
        4,
        effect="pure",
        result="value",
        stretch="batched",
        safe=True,
    ),
    "sum_whole": OpInfo(
        "the sum (operands total, lost)",
        2,
        effect="pure",
        result="operand",
        stretch="batched",
        safe=True,
        free=True,
    ),
    "enter": OpInfo(
        "what `with x as …` binds where x is a mode, which blocks under x enter for themselves",
        1,
        effect="reads",
        result="within",
    ),
    "manager": OpInfo(
        "the function by which `with x` enters x, or leaves it; it takes x, and to leave it also "
        "the class of the exception, the exception and its traceback, or three times None",
        1,
        "name: __enter__ or __exit__",
        effect="reads",
    ),
    "assertion": OpInfo(
        "the AssertionError of a failed assert; operand: its message, if any",
        None,
        effect="pure",
        result="fresh",
    ),
    "catches": OpInfo(
        "whether `except kinds` takes an exception: exception, kinds",
        2,
        effect="reads",
        result="value",
    ),
    "handled": OpInfo(
        "the exception that is being handled: the operand, or what the function's caller handles",
        None,
        "name: raise, which fails if there is none, exception, or exc_info as sys has them",
        effect="reads",
        framed=True,
    ),
    "context": OpInfo(
        "an exception that arises while another is handled has that as its context: new, and "
        "handled, or what the function's caller handles",
        None,
        outs=0,
        effect="binds",
    ),
}


def info(name: str) -> OpInfo:
    """What is declared of an operation; of one that is not in the table, nothing."""
    return OPS.get(name, UNKNOWN)


def having(trait: Callable[[OpInfo], bool]) -> frozenset[str]:
    """The operations of the table that have a trait."""
    return frozenset(name for name, declared in OPS.items() if trait(declared))


INPLACE = having(lambda op: op.result == "inplace")
STORES = having(lambda op: op.effect == "writes") - INPLACE
"""Operations that write their first operand, and assign nothing."""
PURE = having(lambda op: op.stretch == "batched" and op.effect in ("pure", "reads"))
"""Operations that a recording may hold, and that leave everything as it is."""
HOST = PURE | having(lambda op: op.stretch == "host")
"""Operations that may run on the host while a stretch is told apart, for operands all alike."""
WRITES = having(lambda op: op.stretch == "batched" and op.effect == "writes")
"""Operations that a recording may hold, and that write their first operand."""
RECORDED = having(lambda op: op.stretch != "never")
"""Operations that a stretch may hold."""
SAFE = having(lambda op: op.safe) - INPLACE
SAFE_INPLACE = having(lambda op: op.safe) & INPLACE
"""Safe on numbers; on tensors they write."""
COMMUTATIVE = having(lambda op: op.commutative)
MOVES = having(lambda op: op.moves)
FREE = having(lambda op: op.free)
OF_A_FRAME = having(lambda op: op.framed)
"""Operations of a frame: a function with one of them cannot be taken into another, or go round."""
COMPUTED = frozenset({*UNARY, *BINARY, *COMPARE, *INPLACE})
"""Python's operators."""
LAUNCHES = (COMPUTED - {"is", "is_not"}) | {"call", "getitem", "setitem"}
"""Operations of which each may launch a kernel; what is left only looks, names and builds."""

SUMS = ("sum_begun", "sum_left", "sum_lost", "sum_whole")
"""What makes additions those of Python's ``sum``."""

SAFE_GLOBALS = frozenset({"torch", "abs"})
_ELEMENTWISE = (
    "abs acos asin atan atan2 ceil clamp cos erf exp expm1 floor fmod isfinite isinf isnan"
    " log log10 log1p log2 logaddexp logical_and logical_not logical_or maximum minimum"
    " nan_to_num neg reciprocal relu round rsqrt sigmoid sign sin sqrt square tan tanh trunc where"
)
SAFE_CALLS = frozenset(_ELEMENTWISE.split())
"""Functions and methods of torch's, element by element, of which the same holds."""
