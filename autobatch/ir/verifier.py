"""The rules that every lowered program keeps, checked after lowering and after every pass.

In: a ``Function`` (with the ones nested in it) or a ``Program``. Out: all faults that can be
judged; ``check`` raises them as one error that prints each function with its faults.

Rules of form:

 1. A function has at least one block.
 2. A block ends in a known terminator.
 3. The targets of terminators are blocks of the function.
 4. There is exactly one return, in the last block.
 5. Functions, operations and terminators have a span: a file, and a line from 1 on.
 6. Variables are named by text without blanks, commas, brackets, quotes and ``=*?:#``.
 7. Parameters have distinct names and known kinds, in an order that Python allows.
 8. Operations are in the table.
 9. Operations have the number of operands that the table says.
10. Operations have the number of outs that the table, or the shape of an unpacking, says.
11. Attributes are what the table says; operations without one have None.
12. The shape of a call places each operand, and no keyword twice.
13. A block with a handler forks and joins no calls and does not return.

Rules of flow, judged on the ways that there are (where rule 1 holds, and rule 19 where a ``delete``
says of what):

14. A temporary has a value on every path to where it is read.
15. So has a variable that is a mode of a block; ``enter`` reads a mode of its own block.
16. Boxes stand where operations take them, and nowhere else.
17. Captured variables that are read are declared in ``free``.
18. A function that is made is one of the nested ones, and gets its boxes and defaults.
19. ``live_in``, once there, holds for each block at least the variables live at its start.

Rules of a program:

20. The entry is one of its functions, each of which is there by its own name.
21. The result has at least one leaf.
22. Event shapes are declared of parameters of the entry that take an input; they are tuples of
    sizes from 0 on, or None for any.
23. Calls match the parameters of the functions that they are sure to run, or are ``unfit``: the
    threads that come to such a call raise ``TypeError``, as in Python. (Judged where rules 6, 7,
    9, 11 and 20 hold.)

That the entry block has no predecessor is not a rule: a function may begin with a loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

from autobatch.errors import Diagnostic, VerifierError
from autobatch.ir import flow_rules as flow
from autobatch.ir import form_rules as form
from autobatch.ir.fitting import misfits
from autobatch.ir.printer import HEADER, Place, function_lines
from autobatch.ir.program import Block, Function, Program

FORM: dict[int, form.Rule] = {
    1: form.has_blocks,
    2: form.terminators_known,
    3: form.targets_exist,
    4: form.one_return,
    5: form.spans_present,
    6: form.names_valid,
    7: form.params_valid,
    8: form.ops_known,
    9: form.operands_fit,
    10: form.outs_fit,
    11: form.attributes_fit,
    12: form.calls_fit,
    13: form.handlers_fit,
}
FLOW: dict[int, form.Rule] = {
    14: flow.temporaries_defined,
    15: flow.modes_defined,
    16: flow.boxes_kept_apart,
    17: flow.captures_known,
    18: flow.nested_functions_fit,
    19: flow.liveness_covered,
}
RECORDS = {number: FORM[number] for number in (5, 6, 8, 9, 10, 11, 12, 13)}
"""Rules of form that look at one block at a time, whatever function it is in."""
TOLD_OF_CALLS = frozenset({6, 7, 9, 11, 20})
"""Rules without which nobody can say what a call runs."""
WHOLE = {number: rule for number, rule in FORM.items() if number not in RECORDS}

_sound: WeakValueDictionary[int, Block | Function] = WeakValueDictionary()
"""What has been found to keep its rules, by identity. Most of a function stays as it is under a
pass: to judge its blocks anew took half of the time of all passes."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A broken rule; ``place`` is block and index as in ``ir.printer``; None for the program's."""

    rule: int
    message: str
    function: Function | None
    place: Place = HEADER

    def __str__(self) -> str:
        return f"rule {self.rule}: {self.message}"


def verify(subject: Function | Program, before: Program | None = None) -> list[Fault]:
    """All faults, in the order of functions and, within one, of rules; those of calls at the end.

    ``before`` is what a pass made a program of: rule 23 is of calls that were sure there.
    """
    if isinstance(subject, Function):
        return list(_faults(subject))
    found = [*_program_faults(subject)]
    if all(fault.rule not in TOLD_OF_CALLS for fault in found):
        for message, function, place in misfits(subject, before):
            found.append(Fault(23, message, function, place))
    return found


def check(subject: Function | Program, stage: str, before: Program | None = None) -> None:
    """Raise ``VerifierError`` if there are faults after ``stage`` (lowering, or a pass)."""
    faults = verify(subject, before)
    if faults:
        count = "a rule is broken" if len(faults) == 1 else f"{len(faults)} rules are broken"
        headline = f"After {stage} the program is not valid: {count}."
        raise VerifierError(Diagnostic(f"{headline}\n{explain(faults)}", code="verifier"))


def explain(faults: Sequence[Fault]) -> str:
    """The text of the functions at fault, each fault on a line below the one it is about."""
    functions = {id(fault.function): fault.function for fault in faults}
    return "\n\n".join(_annotated(function, faults) for function in functions.values())


def _annotated(function: Function | None, faults: Sequence[Fault]) -> str:
    own = [fault for fault in faults if fault.function is function]
    if function is None:
        return "\n".join(f"! {fault}" for fault in own)
    lines = []
    for place, text in function_lines(function):
        lines.append(text)
        lines += [f"    ! {fault}" for fault in own if fault.place == place]
    return "\n".join(lines)


def _faults(outer: Function) -> Iterator[Fault]:
    for function in outer.walk():
        if not _is_sound(function):
            yield from _function_faults(function)


def _function_faults(function: Function) -> Iterator[Fault]:
    new = tuple(block for block in function.blocks if not _is_sound(block))
    are_sound = not any(_broken(RECORDS, replace(function, blocks=new)))
    found = list(_broken(WHOLE if are_sound else FORM, function))
    if function.blocks:
        found += _broken(FLOW, function)
    if are_sound:
        _sound.update((id(block), block) for block in new)
    if not found:
        _sound[id(function)] = function
    yield from found


def _is_sound(record: Block | Function) -> bool:
    return _sound.get(id(record)) is record


def _program_faults(program: Program) -> Iterator[Fault]:
    if program.entry not in program.functions:
        yield Fault(20, f"there is no function {program.entry!r} to enter", None)
    for name, function in program.functions.items():
        if function.name != name:
            yield Fault(20, f"the function {name} has the name {function.name}", function)
    if not program.out_vars:
        yield Fault(21, "the result has no leaf", None)
    for message in form.shapes_fit(program):
        yield Fault(22, message, None)
    for function in program.functions.values():
        yield from _faults(function)


def _broken(rules: dict[int, form.Rule], function: Function) -> Iterator[Fault]:
    for number, rule in rules.items():
        for place, message in rule(function):
            yield Fault(number, message, function, place)
