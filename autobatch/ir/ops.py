"""The table of operations that a block may hold.

``attr`` says what ``Op.attr`` is; ``arity`` is the number of operands, None if it varies.
An operation means what the Python expression named in ``doc`` means for one example.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpInfo:
    doc: str
    arity: int | None
    attr: str = ""
    outs: int = 1


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

PURE = frozenset(
    {"copy", "getattr", "getitem", "slice", "tuple", "list", "dict", "unpack", "truth", "to_tuple"}
    | {"select"}
    | UNARY.keys()
    | BINARY.keys()
    | COMPARE.keys()
)
HOST = PURE | {"const", "global", "load_free", "format", "join", "import_from"}
"""Operations that may run on the host while a stretch is told apart, for operands all alike."""
INPLACE = frozenset(f"i{name}" for name in BINARY)
RECORDED = HOST | INPLACE | {"setitem", "call"}
"""Operations that a stretch may hold."""
SAFE = (
    frozenset({"const", "copy", "truth", "select", "neg", "pos", "not", "truediv"})
    | (BINARY.keys() - {"floordiv", "mod", "pow", "matmul", "lshift", "rshift"})
    | (COMPARE.keys() - {"in", "not_in"})
)
"""Operations that, on numbers and tensors, fail on no value and have no effect.

Where Python's numbers would fail or not fit (``1 / 0``), the recording of one has a check.
"""
SAFE_INPLACE = frozenset(f"i{name}" for name in SAFE & BINARY.keys())
"""The same on numbers; on tensors they write."""
SAFE_GLOBALS = frozenset({"torch", "abs"})
_ELEMENTWISE = (
    "abs acos asin atan atan2 ceil clamp cos erf exp expm1 floor fmod isfinite isinf isnan"
    " log log10 log1p log2 logaddexp logical_and logical_not logical_or maximum minimum"
    " nan_to_num neg reciprocal relu round rsqrt sigmoid sign sin sqrt square tan tanh trunc where"
)
SAFE_CALLS = frozenset(_ELEMENTWISE.split())
"""Functions and methods of torch's, element by element, of which the same holds."""

OPS: dict[str, OpInfo] = {
    **{name: OpInfo(doc, 1) for name, doc in UNARY.items()},
    **{name: OpInfo(f"x {sign} y", 2) for name, sign in BINARY.items()},
    **{f"i{name}": OpInfo(f"x {sign}= y", 2) for name, sign in BINARY.items()},
    **{name: OpInfo(f"x {sign} y", 2) for name, sign in COMPARE.items()},
    "const": OpInfo("a literal", 0, "value: None, bool, int, float, complex, str, bytes, ..."),
    "global": OpInfo("a global or builtin name of the function's module", 0, "name"),
    "load_free": OpInfo("a captured variable of an enclosing function", 0, "name"),
    "copy": OpInfo("y = x: a second name for one value", 1),
    "delete": OpInfo("del x: the attr names the variable", 0, "name", 0),
    "box": OpInfo("a new box for a captured variable; empty without operand", None),
    "load_box": OpInfo("the value in a box", 1, "name of the variable"),
    "store_box": OpInfo("box, value: set the box", 2, outs=0),
    "clear_box": OpInfo(
        "del x of a captured variable: empties its box", 1, "name of the variable", 0
    ),
    "getattr": OpInfo("x.name", 1, "name"),
    "setattr": OpInfo("x.name = value (operands x, value)", 2, "name", 0),
    "delattr": OpInfo("del x.name", 1, "name", 0),
    "getitem": OpInfo("x[i]", 2),
    "setitem": OpInfo("x[i] = value (operands x, i, value)", 3, outs=0),
    "delitem": OpInfo("del x[i]", 2, outs=0),
    "slice": OpInfo("start:stop:step", 3),
    "tuple": OpInfo("(a, b, …)", None),
    "list": OpInfo("[a, b, …]", None),
    "set": OpInfo("{a, b, …}", None),
    "dict": OpInfo("{k: v, …}: operands k, v, k, v, …", None),
    "extend": OpInfo(
        "list display [*x]: extends the fresh list, operands list, iterable", 2, outs=0
    ),
    "update": OpInfo(
        "dict display {**x}: updates the fresh dict, operands dict, mapping", 2, outs=0
    ),
    "append": OpInfo("appends to a fresh list (comprehension), operands list, value", 2, outs=0),
    "to_tuple": OpInfo("tuple of a fresh list", 1),
    "to_set": OpInfo("set of a fresh list", 1),
    "format": OpInfo("f'{x!r:spec}': operands x, spec", 2, "conversion: '', 's', 'r' or 'a'"),
    "join": OpInfo("the parts of an f-string, joined", None),
    "unpack": OpInfo("a, *b, c = x", 1, "UnpackShape", -1),
    "iter": OpInfo("an iterator over x", 1),
    "next": OpInfo("item, more = next(x): item is undefined where more is False", 1, outs=2),
    "call": OpInfo(
        "a call that stays within its block: operands callee, then arguments", None, "CallShape"
    ),
    "fork": OpInfo(
        "a call of a pure function that runs at the next join, with the others that are forked "
        "until then: operands callee, then arguments",
        None,
        "CallShape",
    ),
    "defer": OpInfo(
        "an operation on what forked calls have yet to give: it runs at the next join, after "
        "them; operands and outs are its own",
        None,
        "(name, attr): the operation",
        -1,
    ),
    "function": OpInfo(
        "a nested function or lambda: operands are its captured boxes in the order of "
        "``free``, then its defaults in the order of params that have one",
        None,
        "Function",
    ),
    "import": OpInfo("import: a module", 0, "(module, level, names): as __import__ takes them"),
    "import_from": OpInfo("from module import name", 1, "name"),
    "truth": OpInfo("bool(x) as a branch takes it", 1),
    "select": OpInfo("a where the truth value is true, else b (operands truth value, a, b)", 3),
    "enter": OpInfo(
        "what `with x as …` binds: the value that x.__enter__() gave when this block execution "
        "entered x, which is among the block's modes",
        1,
    ),
    "assertion": OpInfo(
        "the AssertionError of a failed assert; operand: its message, if any", None
    ),
    "catches": OpInfo("whether `except kinds` takes an exception: exception, kinds", 2),
    "context": OpInfo(
        "an exception that arises while another is handled has that as its context: new, handled",
        2,
        outs=0,
    ),
    "free_box": OpInfo(
        "the box of a captured variable, to hand on to a nested function", 0, "name"
    ),
}
