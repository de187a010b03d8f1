"""The records of a lowered program: functions of basic blocks over named, mutable variables.

A ``Program`` holds one ``Function`` per lowered Python function; a function is a
tuple of ``Block``; a block is a run of ``Op`` that ends in exactly one terminator
(``Jump``, ``Branch``, ``Call``, ``Join``, ``Return`` or ``Raise``). A block's index in
``Function.blocks`` is its program counter: the smallest one runs next, so lowering
lays blocks out such that a loop's blocks precede what follows the loop.

Variables are names (``str``), not SSA values; temporaries are ``%1``, ``%2``, …
Everything here is immutable and free of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from types import CodeType
from typing import Any

from autobatch.ir.names import objects_of
from autobatch.ir.printer import format_function, format_op, format_program, format_terminator
from autobatch.ir.types import Type
from autobatch.source import Span

Var = str
Label = int
EventShape = tuple[int | None, ...]
"""The shape of one thread's tensor; None stands for a dimension of any size."""


@dataclass(frozen=True, slots=True)
class CallShape:
    """How the operands of a call reach its parameters.

    ``positional[i]`` tells whether the i-th operand is starred (``*x``);
    ``keywords[j]`` is the name that the j-th following operand is passed by, None for ``**x``.
    ``entered``: a ``with`` statement enters what the call gives. ``unfit``: no parameters of the
    function that it is sure to run fit, so that it raises ``TypeError`` (see ``ir.fitting``).
    """

    positional: tuple[bool, ...]
    keywords: tuple[str | None, ...] = ()
    entered: bool = False
    unfit: bool = False

    @property
    def is_plain(self) -> bool:
        """No ``*`` and no ``**``: operands map to parameters statically."""
        return True not in self.positional and None not in self.keywords


@dataclass(frozen=True, slots=True)
class UnpackShape:
    """``before`` targets, perhaps a starred one, then ``after`` targets."""

    before: int
    starred: bool = False
    after: int = 0


@dataclass(frozen=True, slots=True)
class Op:
    """One operation: reads ``args``, assigns ``outs``; ``name`` is a key of ``ir.ops.OPS``."""

    name: str
    outs: tuple[Var, ...]
    args: tuple[Var, ...]
    attr: Any
    span: Span

    @property
    def does(self) -> str:
        """The name of what it does, now or, where that is deferred, later."""
        return self.attr[0] if self.name == "defer" else self.name

    def __str__(self) -> str:
        return format_op(self)


@dataclass(frozen=True, slots=True)
class Jump:
    target: Label
    span: Span

    def __str__(self) -> str:
        return format_terminator(self)


@dataclass(frozen=True, slots=True)
class Branch:
    """To ``then`` for the threads whose ``condition`` is true as Python has it."""

    condition: Var
    then: Label
    otherwise: Label
    span: Span

    def __str__(self) -> str:
        return format_terminator(self)


@dataclass(frozen=True, slots=True)
class Call:
    """``out = callee(*args)`` in a frame of its own, then on at ``target``."""

    out: Var
    callee: Var
    args: tuple[Var, ...]
    shape: CallShape
    target: Label
    span: Span

    def __str__(self) -> str:
        return format_terminator(self)


@dataclass(frozen=True, slots=True)
class Return:
    value: Var
    span: Span

    def __str__(self) -> str:
        return format_terminator(self)


@dataclass(frozen=True, slots=True)
class Raise:
    """Raise ``exception`` (an instance or a class), ``from cause`` if there is one."""

    exception: Var
    cause: Var | None
    span: Span

    def __str__(self) -> str:
        return format_terminator(self)


@dataclass(frozen=True, slots=True)
class Join:
    """Run the calls that were forked since the last join, all as one; then on at ``target``."""

    target: Label
    span: Span

    def __str__(self) -> str:
        return format_terminator(self)


Terminator = Jump | Branch | Call | Join | Return | Raise


@dataclass(frozen=True, slots=True)
class Converted:
    """What a block and those behind it come to, their branches turned into selects.

    ``ends`` is the block whose terminator it ends in. It means what the blocks mean, but computes
    both ways of a branch for every thread; an engine may run it where it knows that no thread can
    tell (see ``passes.if_conversion``).
    """

    ops: tuple[Op, ...]
    terminator: Terminator
    ends: Label


@dataclass(frozen=True, slots=True)
class Handler:
    """Where threads go that fail in a block: to ``target``, their exceptions in ``out``."""

    target: Label
    out: Var


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Block:
    """Straight-line ``ops`` and a terminator.

    ``modes`` names the variables that hold context managers; those that are modes
    (``torch.no_grad()``) are entered, outermost first, around each execution of the block. Threads
    for which an operation or the terminator fails go to its ``handler``, with their variables as
    they are then; without one the failure leaves the function. ``converted`` is what may run
    instead of the block; whatever changes a function's control flow leaves it out.
    """

    ops: tuple[Op, ...]
    terminator: Terminator
    modes: tuple[Var, ...] = ()
    handler: Handler | None = None
    converted: Converted | None = None

    def retargeted(self, place: Mapping[Label, Label]) -> Block:
        """The block with every label of its terminator and its handler looked up in ``place``.

        It is the block itself where nothing changes, so that one sees at once that it is.
        """
        if self.converted is None and all(place[at] == at for at in self.successors()):
            return self
        handler = self.handler
        if handler is not None:
            handler = replace(handler, target=place[handler.target])
        match self.terminator:
            case Jump(target=target) | Call(target=target) | Join(target=target):
                terminator: Terminator = replace(self.terminator, target=place[target])
            case Branch(then=then, otherwise=otherwise) as branch:
                terminator = replace(branch, then=place[then], otherwise=place[otherwise])
            case _:
                terminator = self.terminator
        return replace(self, terminator=terminator, handler=handler, converted=None)

    def successors(self) -> tuple[Label, ...]:
        """The blocks that may follow: those of the terminator, then that of the handler."""
        if self.handler is None:
            return self.targets()
        return (*self.targets(), self.handler.target)

    def targets(self) -> tuple[Label, ...]:
        """The blocks that the terminator goes to."""
        match self.terminator:
            case Jump(target=target) | Call(target=target) | Join(target=target):
                return (target,)
            case Branch(then=then, otherwise=otherwise):
                return (then, otherwise)
            case _:
                return ()


@dataclass(frozen=True, slots=True)
class Param:
    """``kind`` is one of positional_only, positional, var_positional, keyword_only, var_keyword."""

    name: Var
    kind: str
    has_default: bool


@dataclass(frozen=True, slots=True)
class Yields:
    """Of a nested function that yields: its code, and what is known of what it captures.

    ``held`` are the variables that nested functions assign, which are held in lists of one element:
    Python's code does not know of that. ``lasting`` are those that nobody assigns meanwhile.
    """

    code: CodeType
    held: frozenset[str]
    lasting: frozenset[str]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Function:
    """A lowered Python function. Its entry is block 0; its only ``Return`` is in the last block.

    ``boxed`` are the variables that nested functions capture: they live in boxes
    (ops ``box``, ``load_box``, ``store_box``), made at entry. ``free`` are the variables
    that it captures itself, read by ``load_free``. ``types`` notes what operations are known to
    give (see ``ir.inference``). ``yields``: Python runs it, and its blocks are only looked into
    (see ``frontend.yielding``).
    """

    name: str
    params: tuple[Param, ...]
    blocks: tuple[Block, ...]
    free: tuple[str, ...]
    span: Span
    nested: tuple[Function, ...] = ()
    live_in: tuple[frozenset[Var], ...] = field(default=(), compare=False)
    types: tuple[tuple[Type | None, ...], ...] = field(default=(), compare=False)
    yields: Yields | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return format_function(self)

    def title_in(self, outer: str) -> str:
        """Its ``__qualname__`` where it is nested in ``outer``; its record may end in a number."""
        parts = [part for part in self.name.split(".") if not part.isdigit()]
        return f"{outer}.<locals>.{parts[-1]}"

    def __repr__(self) -> str:
        return f"<Function {self.name} of {len(self.blocks)} blocks>"

    def nesting(self, nested: Sequence[Function]) -> Function:
        """The function with others nested in it, one for each, which its operations make."""
        new = {id(old): inner for old, inner in zip(self.nested, nested, strict=True)}

        def changed(op: Op) -> Op:
            return replace(op, attr=new[id(op.attr)]) if op.name == "function" else op

        blocks = (replace(block, ops=tuple(map(changed, block.ops))) for block in self.blocks)
        return replace(self, nested=tuple(nested), blocks=tuple(blocks))

    def walk(self) -> Iterator[Function]:
        """This function and the ones nested in it, outermost first."""
        yield self
        for inner in self.nested:
            yield from inner.walk()


@dataclass(frozen=True, slots=True)
class Program:
    """``functions`` by unique name, the entry's first; ``callable`` is the Python function lowered.

    ``out_vars`` names the leaves of the result where the text shows them
    (``out.0``, ``out.1`` for a pair), else ``("out",)``. ``in_shapes`` declares event shapes of
    parameters of the entry, by name; the others may have any.
    """

    functions: dict[str, Function]
    entry: str
    callable: Callable[..., Any]
    out_vars: tuple[str, ...]
    in_shapes: Mapping[Var, EventShape] = field(default_factory=dict)

    def __str__(self) -> str:
        return format_program(self)

    def __repr__(self) -> str:
        return f"<Program {', '.join(self.functions)}>"

    @property
    def objects(self) -> dict[str, object]:
        """The Python objects that the text names, by these names."""
        return objects_of(self)

    @property
    def main(self) -> Function:
        return self.functions[self.entry]

    @property
    def in_vars(self) -> tuple[Var, ...]:
        return tuple(param.name for param in self.main.params)

    def to_fx(self, block: int = 0) -> Any:
        """``autobatch.to_fx(program, block)``; which knows torch."""
        return import_module("autobatch.exporting").to_fx(self, block)
