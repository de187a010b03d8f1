"""The pipeline of passes, and the driver that runs it.

A pass takes a ``Function`` and gives one that means the same; it need not look at nested functions,
since the driver hands them over first. The verifier runs on what comes in and after every pass.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from operator import is_

from autobatch.errors import OptionError
from autobatch.ir.fitting import fitted
from autobatch.ir.program import Function, Program
from autobatch.ir.verifier import check
from autobatch.passes.clean_up import ROUND, clean_up
from autobatch.passes.common_subexpressions import share_expressions
from autobatch.passes.dead_code import drop_dead_code
from autobatch.passes.folding import fold_constants
from autobatch.passes.hoisting import hoist_constants
from autobatch.passes.if_conversion import convert_ifs
from autobatch.passes.invariants import hoist_invariants
from autobatch.passes.jumps import thread_jumps
from autobatch.passes.latches import join_latches
from autobatch.passes.layout import order_blocks
from autobatch.passes.liveness import annotate_liveness
from autobatch.passes.own_calls import inline_own_calls
from autobatch.passes.rotation import rotate_loops
from autobatch.passes.simplify import simplify
from autobatch.passes.sinking import sink_methods
from autobatch.passes.specialisation import Specialised, specialised
from autobatch.passes.strip_debug import strip_debug
from autobatch.passes.types import note_types
from autobatch.structure import own_attribute

Pass = Callable[[Function], Function]

PIPELINE: tuple[Pass, ...] = (
    clean_up,
    hoist_constants,
    clean_up,
    join_latches,
    rotate_loops,
    share_expressions,
    clean_up,
    order_blocks,
    simplify,
    sink_methods,
    convert_ifs,
    note_types,
    annotate_liveness,
)


PASSES: dict[str, Pass] = {
    each.__name__: each
    for each in (*ROUND, *PIPELINE, hoist_invariants, inline_own_calls, strip_debug)
}
"""The passes by name."""


def run_passes(
    function: Function, passes: Sequence[Pass] = PIPELINE, stage: str = "lowering"
) -> Function:
    """``function``, which ``stage`` gave, and those nested in it, after ``passes`` in order."""
    function = apply_pass(without_converted, function)
    check(function, stage)
    for each in passes:
        function = apply_pass(each, function)
        check(function, pass_name(each))
    return function


def chosen_passes(given: Iterable[Pass | str]) -> tuple[Pass, ...]:
    """Passes, of which some may be given by name; ``OptionError`` names what is none."""
    found: list[Pass] = []
    for each in given:
        if isinstance(each, str) and each in PASSES:
            found.append(PASSES[each])
        elif not isinstance(each, str) and callable(each) and isinstance(each, Hashable):
            found.append(each)
        else:
            known = ", ".join(PASSES)
            raise OptionError(
                f"passes has {each!r}; a pass is a callable, with a hash, that takes a Function "
                f"and gives one, or one of {known}."
            )
    return tuple(found)


def pass_name(each: Pass) -> str:
    return str(own_attribute(each, "__name__", type(each).__name__))


def stages(program: Program, passes: Sequence[Pass]) -> Iterator[tuple[str, Program]]:
    """The program after each pass, with the name of the pass; verified every time."""
    functions = {name: without_converted(f) for name, f in program.functions.items()}
    for each in passes:
        functions = {name: apply_pass(each, function) for name, function in functions.items()}
        made = replace(program, functions=functions)
        check(made, pass_name(each), program)
        program = fitted(made)
        functions = program.functions
        yield pass_name(each), program


def without_converted(function: Function) -> Function:
    """The function as it was before if-conversion, whose result passes need not keep up."""
    blocks = (b if b.converted is None else replace(b, converted=None) for b in function.blocks)
    return replace(function, blocks=tuple(blocks))


def apply_pass(each: Pass, function: Function) -> Function:
    """One pass over ``function``, its nested functions first; none over those that yield."""
    if function.yields is not None:
        return function
    if not function.nested:
        return _applied(each, function)
    nested = [apply_pass(each, inner) for inner in function.nested]
    return _applied(each, function.nesting(nested))


def _applied(each: Pass, function: Function) -> Function:
    try:
        made: object = each(function)
    except Exception as error:
        error.add_note(
            f"The pass {pass_name(each)} raised this, given the function {function.name}."
        )
        raise
    if not isinstance(made, Function):
        raise OptionError(f"The pass {pass_name(each)} gives {made!r}; it must give a Function.")
    if len(made.blocks) == len(function.blocks) and all(map(is_, made.blocks, function.blocks)):
        made = replace(made, blocks=function.blocks)
    if made.blocks is function.blocks:
        return function if _is_same(made, function) else made
    if made.types is function.types:  # what is noted is of the blocks that there were
        made = replace(made, types=())
    if made.live_in and made.live_in is function.live_in:
        return annotate_liveness(made)
    return made


def _is_same(made: Function, function: Function) -> bool:
    """Whether a pass has changed nothing, so that nothing need be verified again."""
    return all(
        getattr(made, each.name) is getattr(function, each.name) for each in fields(Function)
    )


__all__ = [
    "PASSES",
    "PIPELINE",
    "Pass",
    "Specialised",
    "annotate_liveness",
    "apply_pass",
    "chosen_passes",
    "clean_up",
    "convert_ifs",
    "drop_dead_code",
    "fold_constants",
    "hoist_constants",
    "hoist_invariants",
    "join_latches",
    "note_types",
    "order_blocks",
    "rotate_loops",
    "run_passes",
    "share_expressions",
    "simplify",
    "specialised",
    "stages",
    "strip_debug",
    "thread_jumps",
]
