"""Control flow of generated programs: branches, loops that end, jumps, nested functions.

Loops end because a counter that no other statement may assign bounds them, and calls
end because a recursion's first argument decreases.
"""

from __future__ import annotations

from .writer import Writer


def suite(w: Writer, most: int = 3) -> None:
    """One to ``most`` statements."""
    some(w, most)
    if w.lines[-1].endswith(":"):
        w.line("pass")


def some(w: Writer, most: int) -> None:
    for _ in range(1 + w.below(most)):
        statement(w)


def statement(w: Writer) -> None:
    w.budget -= 1
    if w.budget < 0:
        return
    writers = (None, None, None, branch, branch, loop, loop, define, closure, definitions, jump)
    attempts = (attempt,) * 4 + (managed,) * 3 if w.features.catches else ()
    chosen = w.pick((*writers, *attempts) if w.scope.nesting > 1 else (*writers[:-1], *attempts))
    deep = w.scope.nesting >= 5 or (chosen is loop and w.scope.loops >= w.scope.max_loops)
    if chosen is None or deep:
        w.statement()
    else:
        chosen(w)


def control(w: Writer) -> None:
    """A branch or a loop."""
    w.pick((branch, loop))(w)


def branch(w: Writer) -> None:
    with w.block(f"if {w.condition()}:"):
        suite(w)
    for _ in range(w.below(3) // 2 if w.budget > 0 else 0):
        with w.block(f"elif {w.condition()}:"):
            suite(w)
    if w.budget > 0 and w.chance(2):
        with w.block("else:"):
            suite(w)


KINDS = (
    "Exception",
    "ZeroDivisionError",
    "(IndexError, KeyError)",
    "ValueError",
    "ArithmeticError",
)
RISKY = "{var:int} = 12 // ({int} % 3)"
IN_HANDLERS = (
    "{ints$1}.append(len(str(error)))",
    "{var:int} = len(error.args)",
    "raise",
    "raise ValueError({int}) from error",
    "{var:bool} = isinstance(error, ValueError)",
)


def attempt(w: Writer) -> None:
    """A ``try`` statement around what may raise, or not."""
    finally_ = w.chance(3)
    with w.block("try:"):
        suite(w)
        if w.chance(2) and w.fits(RISKY):
            w.line(w.fill(RISKY, 1))
    if not finally_ or w.chance(2):
        kind = w.pick(KINDS)
        named = w.chance(2)
        with w.block(f"except {kind} as error:" if named else f"except {kind}:"):
            if named:
                handled(w)
            suite(w, 2)
        if w.chance(3):
            with w.block("else:"):
                suite(w, 2)
    if finally_:
        with w.block("finally:"):
            suite(w, 2)


MANAGERS = (
    "Managed({ints$1}, {int}, {bool})",
    "Managed({ints$1}, {int}, not {bool})",
    "contextlib.suppress(ZeroDivisionError)",
    "contextlib.suppress(IndexError, KeyError, ValueError)",
    "contextlib.nullcontext({int})",
)


def managed(w: Writer) -> None:
    """A ``with`` statement around what may raise, or not."""
    text = w.pick([each for each in MANAGERS if w.fits(each)])
    filled = w.fill(text, 1)
    name = w.fresh("int") if "suppress" not in text and w.chance(2) else ""
    with w.block(f"with {filled} as {name}:" if name else f"with {filled}:"):
        if name:
            w.scope.types[name] = "int"
        suite(w)
        if w.chance(2) and w.fits(RISKY):
            w.line(w.fill(RISKY, 1))


def handled(w: Writer) -> None:
    """A statement about the exception, which for some threads only."""
    text = w.pick([each for each in IN_HANDLERS if w.fits(each)])
    with w.block(f"if {w.condition()}:"):
        w.line(w.fill(text, 1))


def definitions(w: Writer) -> None:
    """A name that every arm defines (or, where threads may raise, only one does)."""
    type_ = w.pick([t for t in ("int", "float", "ints", "f3") if t in w.features.types])
    name = w.fresh(type_)
    with w.block(f"if {w.condition()}:"):
        w.declare(type_, w.expression(type_, 1), name)
        suite(w, 2)
    if not (w.features.raises and w.chance(3)):
        with w.block("else:"):
            some(w, 2)
            w.declare(type_, w.expression(type_, 1), name)
    w.scope.types[name] = type_


def define(w: Writer) -> None:
    types = sorted(t for t in w.features.types if t != "fn")
    type_ = w.pick(types)
    w.declare(type_, w.expression(type_, 2))


def closure(w: Writer) -> None:
    """A lambda or nested function over the names in scope, which later statements may change."""
    if "fn" not in w.features.types:
        return w.statement()
    name = w.fresh("fn")
    free = w.pick([*w.names("int"), "1"])
    if w.features.writes and w.chance(2):
        own = w.names("int", assignable=True)
        readonly = set(w.scope.readonly)
        w.scope.readonly.update(w.scope.types)
        with w.indented(f"def {name}(p):"):
            if own and w.chance(2):
                w.line(f"nonlocal {own[0]}\n{own[0]} = ({own[0]} * 2 + p) % 97")
            for _ in range(1 + w.below(2)):
                w.statement()
            w.line(f"return p - {free}")
        w.scope.readonly = readonly
    elif w.chance(2):
        with w.indented(f"def {name}(p, q={w.atom('int')}):"):
            w.line(f"return p + {free} * q")
    else:
        w.line(f"{name} = lambda p: p - {free}")
    w.scope.types[name] = "fn"


def jump(w: Writer) -> None:
    """A ``break``, ``continue`` or early ``return`` for some threads."""
    options = ["break", "continue"] if w.scope.jumps else []
    with w.block(f"if {w.condition()}:"):
        if w.chance(2):
            w.statement()
        word = w.pick([*options, "return"])
        w.line(word if word != "return" else f"return {w.fill(w.scope.result, 1)}")


def loop(w: Writer) -> None:
    outer = w.scope.jumps
    w.scope.loops, w.scope.jumps = w.scope.loops + 1, True
    head = w.pick((_for_range, _while, _while_true, _for_each))
    head(w)
    w.scope.jumps = outer
    w.scope.loops -= 1
    if w.chance(4):
        with w.block("else:"):
            suite(w, 2)


def _bind(w: Writer, *names: str, type_: str = "int") -> None:
    for name in names:
        w.scope.types[name] = type_
        w.scope.readonly.add(name)


def _for_range(w: Writer) -> None:
    i = w.fresh("i")
    text = w.pick(
        (
            "range({int} % 5)",
            "range(3)",
            "range({int} % 3, {int} % 5)",
            "range({int} % 5, -1, -1)",
            "range(0, 6, 1 + {int} % 3)",
        )
    )
    with w.block(f"for {i} in {w.fill(text, 1)}:"):
        _bind(w, i)
        suite(w)


def _for_each(w: Writer) -> None:
    """Over part of a list, since the body may append to it, or over the rows of a tensor."""
    i, v = w.fresh("i"), w.fresh("v")
    heads = [
        (f"for {v} in " + "{ints}[:4]:", (v,), "int"),
        (f"for {i}, {v} in enumerate(" + "{ints}[:3]):", (i, v), "int"),
        (f"for {i}, {v} in zip(" + "{ints}[:3], {ints}[:4]):", (i, v), "int"),
        (f"for {v} in reversed(" + "{ints}[:3]):", (v,), "int"),
        (f"for {v} in " + "{f3}:", (v,), "f0"),
        (f"for {v} in " + "{tensors}[:3]:", (v,), "f3"),
    ]
    needed = [head for head in heads if _element_source(head[0]) in w.features.types]
    text, names, type_ = w.pick(needed)
    with w.block(w.fill(text, 1)):
        _bind(w, *names, type_=type_)
        suite(w)


def _element_source(text: str) -> str:
    return next(t for t in ("ints", "f3", "tensors") if "{" + t + "}" in text)


def _while(w: Writer) -> None:
    i = w.declare("int", "0", w.fresh("i"))
    _bind(w, i)
    with w.block(f"while {i} < {2 + w.below(3)} and ({w.condition()}):"):
        w.line(f"{i} += 1")
        suite(w)


def _while_true(w: Writer) -> None:
    i = w.declare("int", "0", w.fresh("i"))
    _bind(w, i)
    with w.block("while True:"):
        w.line(f"{i} += 1")
        with w.indented(f"if {i} > {2 + w.below(3)} or {w.condition()}:"):
            w.line("break")
        suite(w)
