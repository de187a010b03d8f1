"""Python code for a part of a lowered program: what one thread does in it, by itself.

In: blocks of a function, of which some are the part, and the variables that it begins with. Out: a
Python function of these that goes from the first of the blocks on until it leaves the part, and
gives the block that it leaves from, the one that it goes to, and its variables then. Each line
knows the operation that it is of. A block that one other alone leads to stands where that ends; the
others are told apart by their numbers.
"""

from __future__ import annotations

import ast
import keyword
import linecache
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CellType, CodeType, FunctionType
from typing import Any

from autobatch.alone.tracebacks import placed
from autobatch.batching.raising import raised
from autobatch.batching.semantics import SEMANTICS, TAKES_ATTR, load_box, load_global, unbound_free
from autobatch.ir.ops import BINARY, COMPARE, INPLACE, UNARY
from autobatch.ir.program import Block, Branch, Call, CallShape, Function, Jump, Op, Raise, Return
from autobatch.source import Span, byte_column

DEEPEST = 24
"""How many branches a block may stand in."""
LITERALS = (int, str, bool, type(None))
SIGNS = {**BINARY, **COMPARE}
OWN = "_autobatch_"


Makers = dict[tuple[int, int], tuple[Function, Mapping[str, Any], Callable[..., Any]]]
"""What makes nested functions, by the function and the namespace; these are kept alive."""


@dataclass(frozen=True, slots=True)
class Written:
    """``run`` takes the part's variables by place; ``spans`` has each line's operation."""

    run: Callable[..., Any]
    code: CodeType
    spans: Mapping[int, Span]

    def span_of(self, error: BaseException) -> Span | None:
        """The operation in which an exception has come about, and what that has called."""
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code is self.code:
                found = self.spans.get(trace.tb_lineno)
                return found and placed(trace.tb_next, found)
            trace = trace.tb_next
        return None


@dataclass(slots=True, eq=False, repr=False)
class Writer:
    """Writes one function; ``given`` are the objects that its code names."""

    function: Function
    namespace: dict[str, Any]
    given: dict[str, Any]
    lines: list[str] = field(default_factory=list)
    spans: dict[int, Span] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    variables: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.variables = variables_of(self.function)

    # Names.

    def var(self, name: str) -> str:
        """A local variable: the user's own name where it is one, for messages to have it."""
        found = self.names.get(name)
        if found is None:
            plain = name.isidentifier() and not keyword.iskeyword(name)
            taken = name.startswith(OWN) or name == "__debug__"
            found = name if plain and not taken else f"{OWN}v{len(self.names)}"
            self.names[name] = found
        return found

    def known(self, value: Any, kind: str) -> str:
        """A name for an object."""
        name = f"{OWN}{kind}{len(self.given)}"
        self.given[name] = value
        return name

    def meaning(self, name: str) -> str:
        own = f"{OWN}do_{name}"
        self.given[own] = SEMANTICS[name]
        return own

    def line(self, depth: int, text: str, span: Span | None = None) -> None:
        self.lines.append(" " * depth + text)
        if span is not None:
            self.spans[len(self.lines)] = span

    # Operations.

    def op(self, depth: int, op: Op) -> None:
        args = [self.var(arg) for arg in op.args]
        outs = [self.var(out) for out in op.outs]
        text = self.statement(op, args, outs)
        if text is None:
            text = self.expression(op, args)
            if outs:
                text = f"{', '.join(outs)} = {text}"
        for part in text.split("\n"):
            self.line(depth, part, op.span)

    def statement(self, op: Op, args: list[str], outs: list[str]) -> str | None:
        """What is no expression; None for all others."""
        match op.name:
            case "setattr":
                return f"{args[0]}.{op.attr} = {args[1]}"
            case "delattr":
                return f"del {args[0]}.{op.attr}"
            case "setitem":
                return f"{args[0]}[{args[1]}] = {args[2]}"
            case "delitem":
                return f"del {args[0]}[{args[1]}]"
            case "append":
                return f"{args[0]}.append({args[1]})"
            case "delete":
                return f"del {self.var(op.attr)}"
            case "next":
                end = f"{OWN}end"
                return (
                    f"{outs[0]} = {OWN}next({args[0]}, {end})\n{outs[1]} = {outs[0]} is not {end}"
                )
            case "unpack":
                shape = op.attr
                names = list(outs)
                if shape.starred:
                    names[shape.before] = f"*{names[shape.before]}"
                return f"[{', '.join(names)}] = {args[0]}"
        if op.name in INPLACE:
            made = f"{OWN}made"
            return (
                f"{made} = {args[0]}\n{made} {BINARY[op.name[1:]]}= {args[1]}\n{outs[0]} = {made}"
            )
        return None

    def expression(self, op: Op, args: list[str]) -> str:
        name = op.name
        if name in SIGNS:
            return f"{args[0]} {SIGNS[name]} {args[1]}"
        if name in UNARY:
            return f"{UNARY[name].removesuffix('x')}{args[0]}"
        match name:
            case "copy" | "load_outer":
                return args[0]
            case "const":
                return repr(op.attr) if type(op.attr) in LITERALS else self.known(op.attr, "c")
            case "global":
                return self.global_(op.attr)
            case "load_free":
                return f"{OWN}load_free({op.attr!r}, {self.free(op.attr)})"
            case "free_box":
                return self.free(op.attr)
            case "getattr" if op.attr.isidentifier():
                return f"{args[0]}.{op.attr}"
            case "getitem":
                return f"{args[0]}[{args[1]}]"
            case "tuple":
                return f"({', '.join(args)}{',' if len(args) == 1 else ''})"
            case "list":
                return f"[{', '.join(args)}]"
            case "set" if args:
                return f"{{{', '.join(args)}}}"
            case "dict":
                return f"{{{', '.join(map(': '.join, zip(args[::2], args[1::2], strict=True)))}}}"
            case "truth":
                return f"not not {args[0]}"
            case "iter":
                return f"{OWN}iter({args[0]})"
            case "call":
                return self.call(op.attr, args[0], args[1:])
            case "function":
                return self.nested_function(op, args)
        shown = [self.known(op.attr, "c")] if name in TAKES_ATTR else []
        return f"{self.meaning(name)}({', '.join([*shown, *args])})"

    def global_(self, name: str) -> str:
        """A global: by its name, unless that is a variable's."""
        if name in self.variables or name.startswith(OWN):
            return f"{OWN}load_global({OWN}globals, {name!r})"
        return name

    def free(self, name: str) -> str:
        return f"{OWN}free_{name}"

    def call(self, shape: CallShape, callee: str, args: list[str]) -> str:
        count = len(shape.positional)
        shown = [f"*{a}" if s else a for a, s in zip(args[:count], shape.positional, strict=True)]
        for name, arg in zip(shape.keywords, args[count:], strict=True):
            shown.append(f"**{arg}" if name is None else f"{name}={arg}")
        return f"{callee}({', '.join(shown)})"

    def nested_function(self, op: Op, args: list[str]) -> str:
        """A function that is made here: by one that takes its boxes and defaults."""
        inner: Function = op.attr
        maker = self.known(written_function(inner, self.namespace), "f")
        return f"{maker}({', '.join(args)})"

    # Blocks.

    def body(self, blocks: Mapping[int, Block], first: int, depth: int) -> None:
        """The blocks from ``first`` on, as a loop over those that others go to by number."""
        heads = heads_of(blocks, first)
        loops = len(heads) > 1 or any(first in block.successors() for block in blocks.values())
        if loops:
            self.line(depth, f"{OWN}at = {first}")
            self.line(depth, "while True:")
        self.chosen(blocks, heads, heads, depth + loops, loops)

    def chosen(
        self,
        blocks: Mapping[int, Block],
        heads: list[int],
        some: list[int],
        depth: int,
        loops: bool,
    ) -> None:
        """One of some blocks, by halves."""
        if len(some) == 1:
            self.block(blocks, heads, some[0], depth, loops)
            return
        middle = len(some) // 2
        self.line(depth, f"if {OWN}at < {some[middle]}:")
        self.chosen(blocks, heads, some[:middle], depth + 1, loops)
        self.line(depth, "else:")
        self.chosen(blocks, heads, some[middle:], depth + 1, loops)

    def block(
        self, blocks: Mapping[int, Block], heads: list[int], label: int, depth: int, loops: bool
    ) -> None:
        block = blocks[label]
        for op in block.ops:
            self.op(depth, op)
        span = block.terminator.span
        match block.terminator:
            case Jump(target=target):
                self.go(blocks, heads, label, target, depth, loops, span)
            case Branch(condition=condition, then=then, otherwise=otherwise):
                self.line(depth, f"if {self.var(condition)}:", span)
                self.go(blocks, heads, label, then, depth + 1, loops, span)
                self.line(depth, "else:")
                self.go(blocks, heads, label, otherwise, depth + 1, loops, span)
            case Call(out=out, callee=callee, args=args, shape=shape, target=target):
                made = self.call(shape, self.var(callee), [self.var(arg) for arg in args])
                self.line(depth, f"{self.var(out)} = {made}", span)
                self.go(blocks, heads, label, target, depth, loops, span)
            case Raise(exception=exception, cause=cause):
                shown = [self.var(name) for name in (exception, cause) if name is not None]
                self.line(depth, f"raise {OWN}raised({', '.join(shown)})", span)
            case Return(value=value):
                self.line(depth, f"return {self.var(value)}", span)
            case _:
                raise AssertionError(block.terminator)

    def go(
        self,
        blocks: Mapping[int, Block],
        heads: list[int],
        label: int,
        target: int,
        depth: int,
        loops: bool,
        span: Span,
    ) -> None:
        """On from the block ``label`` to another one, or out."""
        if target not in blocks:
            self.line(depth, f"return {label}, {target}, {OWN}locals()", span)
        elif target in heads:
            assert loops
            self.line(depth, f"{OWN}at = {target}", span)
            self.line(depth, "continue")
        else:
            self.block(blocks, heads, target, depth, loops)


def base_names(namespace: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{OWN}next": next,
        f"{OWN}iter": iter,
        f"{OWN}end": END,
        f"{OWN}locals": locals,
        f"{OWN}raised": raised,
        f"{OWN}load_free": load_free,
        f"{OWN}load_global": load_global,
        f"{OWN}globals": namespace,
    }


class End:
    """What stands where an iterator has ended."""


END = End()


def load_free(name: str, box: CellType) -> Any:
    return load_box(name, box, unbound_free)


def heads_of(blocks: Mapping[int, Block], first: int) -> list[int]:
    """The blocks that do not stand where another ends: several lead to them, or it is too deep."""
    leads = Counter(t for block in blocks.values() for t in block.successors() if t in blocks)
    heads = {first, *(label for label, count in leads.items() if count > 1)}
    todo = [(label, 0) for label in heads]
    while todo:
        label, depth = todo.pop()
        for target in blocks[label].successors():
            if target not in blocks or target in heads:
                continue
            if depth == DEEPEST:
                heads.add(target)
            todo.append((target, 0 if depth == DEEPEST else depth + 1))
    return sorted(heads)


def variables_of(function: Function) -> frozenset[str]:
    """All variables of a function."""
    outs = {out for block in function.blocks for op in block.ops for out in op.outs}
    ends = [block.terminator for block in function.blocks]
    outs |= {end.out for end in ends if isinstance(end, Call)}
    return frozenset(outs | {param.name for param in function.params})


def written_part(
    function: Function,
    blocks: Mapping[int, Block],
    first: int,
    variables: tuple[str, ...],
    namespace: dict[str, Any],
    boxes: Mapping[str, Any],
) -> tuple[Written, dict[str, str]]:
    """The code of some blocks of a function, and what its variables are called there."""
    writer = Writer(function, namespace, base_names(namespace))
    params = [writer.var(name) for name in variables]
    for name, box in boxes.items():
        writer.given[writer.free(name)] = box
    title = f"{OWN}part"
    writer.line(0, "HEAD")
    writer.body(blocks, first, 2)
    return finished(writer, title, params, function.name), writer.names


def finished(writer: Writer, title: str, params: list[str], name: str) -> Written:
    """The function of the lines that have been written, in the module of its program."""
    given = sorted(writer.given)
    writer.lines[0] = f" def {title}({', '.join(params)}):"
    outer = f"def {OWN}made({', '.join(given)}):"
    text = "\n".join([outer, *writer.lines, f" return {title}"])
    spans = {line + 1: span for line, span in writer.spans.items()}
    code = compile(text, f"<{name} as plain Python>", "exec", dont_inherit=True)
    (made,) = (const for const in code.co_consts if isinstance(const, CodeType))
    run = FunctionType(made, writer.namespace)(**writer.given)
    return Written(run, run.__code__, spans)


def relocated(text: str, spans: Mapping[int, Span], whole: Span) -> ast.Module:
    """The code of a ``whole`` function with the places in the user's source, for tracebacks.

    ``spans`` are those of its lines; a line that has none is the function's.
    """
    tree, lines = ast.parse(text), linecache.getlines(whole.file)
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.expr | ast.arg | ast.keyword | ast.ExceptHandler):
            span = spans.get(node.lineno, whole).chain()[0]  # what is inlined is another's text
            node.lineno, node.end_lineno = span.line, span.end_line
            node.col_offset = byte_column(lines, span.line, span.column)
            node.end_col_offset = byte_column(lines, span.end_line, span.end_column)
    return tree


def may_be_written(function: Function) -> bool:
    """Whether a nested function can be written: none in it yields, catches, or enters a mode."""
    if function.yields is not None:
        return False
    for block in function.blocks:
        if block.modes or block.handler is not None:
            return False
        if not all(may_be_written(op.attr) for op in block.ops if op.name == "function"):
            return False
    return True


def written_function(function: Function, namespace: dict[str, Any]) -> Callable[..., Any]:
    """What makes a nested function of its boxes and the defaults of its parameters."""
    writer = Writer(function, namespace, base_names(namespace))
    shown: list[str] = []
    star = False
    for param in function.params:
        name = writer.var(param.name)
        if param.kind == "var_positional":
            star = True
            name = f"*{name}"
        elif param.kind == "var_keyword":
            name = f"**{name}"
        elif param.kind == "keyword_only" and not star:
            star = True
            shown.append("*")
        if param.has_default:
            name = f"{name}={OWN}default_{param.name}"
        shown.append(name)
        last = param.kind == "positional_only"
        following = function.params[function.params.index(param) + 1 :]
        if last and not (following and following[0].kind == "positional_only"):
            shown.append("/")
    title = function.name.rsplit(".", 1)[-1]
    title = title if title.isidentifier() and not keyword.iskeyword(title) else f"{OWN}function"
    writer.line(0, "HEAD")
    writer.body(dict(enumerate(function.blocks)), 0, 3)
    defaults = [f"{OWN}default_{p.name}" for p in function.params if p.has_default]
    frees = [writer.free(name) for name in function.free]
    maker = f"{OWN}maker"
    writer.lines[0] = f"  def {title}({', '.join(shown)}):"
    text = "\n".join(
        [
            f"def {OWN}made({', '.join(sorted(writer.given))}):",
            f" def {maker}({', '.join([*frees, *defaults])}):",
            *writer.lines,
            f"  {title}.__autobatch__ = 'unknown'",
            f"  return {title}",
            f" return {maker}",
        ]
    )
    spans = {line + 2: span for line, span in writer.spans.items()}
    whole, file = function.span, f"<{function.name} as plain Python>"
    tree = ast.parse(text) if whole is None else relocated(text, spans, whole)
    code = compile(tree, file if whole is None else whole.file, "exec", dont_inherit=True)
    (made,) = (const for const in code.co_consts if isinstance(const, CodeType))
    found: Callable[..., Any] = FunctionType(made, namespace)(**writer.given)
    return found
