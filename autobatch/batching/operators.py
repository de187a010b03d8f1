"""Operators on cells: ``x + y``, ``-x``, ``x < y``, ``x += y``.

The kinds of the operands choose the way: Python's own operator once for uniform operands,
number columns by ``arithmetic``, tensors by ``torch_ops``, program-made containers by their
parts, instances by their Python methods, everything else thread by thread.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from autobatch.batching import arithmetic, lists, semantics, sequences, writes
from autobatch.batching.applying.overlaps import root_of
from autobatch.batching.containers.callees import may_be_given
from autobatch.batching.context import Context, RowsFail
from autobatch.batching.effects import effect_of
from autobatch.batching.finishing import finished
from autobatch.batching.foreign import VIEWS, memories_of, memory_of
from autobatch.batching.foreign import parts as parts_of_object
from autobatch.batching.generators import held_by
from autobatch.batching.host.own_methods import asks, each_thread
from autobatch.batching.host.rows import run_rows
from autobatch.batching.kinds import (
    foreign_operand,
    holds_tensors,
    is_instance,
    is_tensor,
    is_users,
    named_cells,
    own_method,
    parts_of,
    user_class,
)
from autobatch.batching.protocols import special_method
from autobatch.batching.shared import merging_at
from autobatch.batching.tables import packed, products, rules, writing
from autobatch.batching.tensors import torch_ops
from autobatch.batching.trace import Untraceable
from autobatch.batching.trace.recorder import is_recording
from autobatch.batching.trees import container_of, is_plain
from autobatch.batching.truths import negation
from autobatch.forms.asking import answered, is_other, is_same
from autobatch.structure import own_attribute
from autobatch.values import packs
from autobatch.values.cells import (
    PLACE,
    Cell,
    Column,
    Container,
    Objects,
    Uniform,
    View,
    read,
    uniform,
)

REFLECTED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


def once(
    context: Context,
    function: Callable[..., Any],
    *objs: Any,
    receiver: object = None,
    meaning: object = None,
) -> Cell:
    """Run for all threads at once what has only uniform operands; a failure is everyone's.

    ``receiver`` is what the function is a method of, ``meaning`` the callee that it stands for.
    It runs once for each thread if it asks methods of the user's that have effects.
    """
    if asks(context, meaning or function, (*objs, receiver)):
        return each_thread(context, function, objs)
    try:
        result = function(*objs)
    except Exception as error:
        raise RowsFail(context.lowest(), error) from error
    if is_plain(result) and not isinstance(result, VIEWS):
        return uniform(result)
    if isinstance(result, np.ndarray):
        return array_cell(context, result, objs)
    before: set[Any] = set()
    for obj in (*objs, receiver):
        collect_ids(obj, before)
    return made_by(result, before)


def array_cell(context: Context, array: np.ndarray, operands: tuple[Any, ...]) -> Cell:
    """An array for all threads, where it is part of an operand, else one for each of them."""
    if any(memory_of(array) in memories_of(obj) for obj in operands):
        return uniform(array, shared=True)
    return Cell(Objects([array, *(array.copy() for _ in range(context.k - 1))][: context.k]))


def fresh(result: Any) -> Cell:
    """The cell for what a host call has made: its containers are the program's own."""
    return made_by(result, set())


def made_by(result: Any, before: set[Any]) -> Cell:
    """The same, where what was ``before`` the call may be handed back, alone or in a new list."""
    if (memory_key(result) if isinstance(result, Tensor) else id(result)) in before:
        return uniform(result, shared=True)
    if isinstance(result, VIEWS):  # of a dict that existed before: the program's own are containers
        return uniform(result, shared=True)
    if is_plain(result):
        return uniform(result)
    if isinstance(result, Enum):
        return uniform(result, shared=True)
    return container_of(result, lambda part: made_by(part, before))


def memory_key(tensor: Tensor) -> tuple[str, int]:
    return ("memory", memory_of(tensor) or id(tensor))


def collect_ids(obj: Any, found: set[Any]) -> None:
    """The lists, dicts, sets and tensors that an operand holds."""
    if isinstance(obj, Tensor):
        found.add(memory_key(obj))
    if isinstance(obj, list | dict | set):
        if id(obj) in found:
            return
        found.add(id(obj))
    if isinstance(obj, list | tuple | set | frozenset):
        for part in obj:
            collect_ids(part, found)
    elif isinstance(obj, dict):
        for part in obj.values():
            collect_ids(part, found)
    elif isinstance(obj, VIEWS):
        for part in obj.mapping.values():
            collect_ids(part, found)
    elif is_pythons_iterator(type(obj)):  # ``reversed(table.values())``
        for part in held_by(obj):
            collect_ids(part, found)
    elif id(obj) not in found and is_users(obj if isinstance(obj, type) else type(obj)):
        found.add(id(obj))
        for part in parts_of_object(obj):
            collect_ids(part, found)


def is_pythons_iterator(kind: type) -> bool:
    return hasattr(kind, "__next__") and not is_users(kind)


def unary(context: Context, name: str, cell: Cell) -> Cell:
    if name == "not":
        return negation(context, cell)
    value = read(cell)
    meaning = semantics.SEMANTICS[name]
    if is_tensor(value):
        return torch_ops.apply(context, meaning, [cell], {}, False)
    if is_instance(value) or own_method(value, f"__{name}__"):
        return dunder(context, meaning, f"__{name}__", [cell])
    if type(value) is Uniform:
        return once(context, meaning, value.obj)
    done = arithmetic.apply(context, name, meaning, [cell])
    if done is None and rules.are_ragged([cell]):
        done = rules.apply(context, meaning, [cell], {})
    if done is None and packs.is_packed(value):
        done = packed.lent(context, [cell], lambda: unary(context, name, cell))
    if done is None and type(value) is Objects and holds_tensors(value):
        done = torch_ops.apply(context, meaning, [cell], {}, False)
    if done is not None:
        return done
    is_fresh = name != "pos"  # ``+x`` of a tensor is ``x`` itself
    return run_rows(context, meaning, [cell], {}, "objects", fresh=is_fresh)


def binary(context: Context, name: str, left: Cell, right: Cell, written: Any = None) -> Cell:
    """An arithmetic operator or an ordering or equality comparison.

    ``written`` is what the program says, where that is ``x += y`` of what has no such method.
    """
    meaning = semantics.SEMANTICS[name]
    said = written or meaning
    if name == "matmul" and View in (type(left.value), type(right.value)):
        done = products.apply(context, meaning, [left, right], {}, torch_ops.apply)
        if done is not None:
            return done
    x, y = read(left), read(right)
    if asks_user(x, y, name):
        return instance_binary(context, name, left, right, written)
    if type(x) is Uniform and type(y) is Uniform:
        if is_tensor(x) or is_tensor(y):
            return torch_ops.apply(context, meaning, [left, right], {}, False)
        refuse_functions(x, y)
        return once(context, said, x.obj, y.obj)
    done = arithmetic.apply(context, name, said, [left, right])
    if done is not None:
        return done
    cells = [left, right]
    if rules.are_ragged(cells):
        done = rules.apply(context, meaning, cells, {})
        if done is not None:
            return done
    if (is_tensor(x) or is_tensor(y)) and not foreign_operand(x, y):
        return torch_ops.apply(context, meaning, cells, {}, False)
    if packs.is_packed(x) or packs.is_packed(y):
        return packed.lent(context, cells, lambda: binary(context, name, left, right, written))
    found = lists.held(x) if name == "add" else None
    if found is not None:
        done = lists.added(context, found, right)
        if done is not None:
            return done
    if name == "mul" and (type(x) is Container or type(y) is Container):
        done = lists.repeated(context, left, right) or lists.repeated(context, right, left)
        if done is not None:
            return done
    if type(x) is Container or type(y) is Container:
        done = sequences.combined(context, binary, name, left, right)
        if done is not None:
            return done
    if Objects in (type(x), type(y)) and not foreign_operand(x, y):
        return torch_ops.apply(context, meaning, [left, right], {}, False)
    lends = holds_parts(name, left) or holds_parts(name, right)
    return run_rows(context, said, [left, right], {}, "objects", keep=lends, fresh=not lends)


PUT_TOGETHER = {
    "add": (list, tuple),
    "mul": (list, tuple),
    **dict.fromkeys(("or", "and", "sub", "xor"), (dict, set, frozenset)),
}


def holds_parts(name: str, cell: Cell) -> bool:
    """Whether an operator gives a container that has the very parts of this operand."""
    kinds, value = PUT_TOGETHER.get(name, ()), read(cell)
    if type(value) is Objects:
        return any(issubclass(kind, kinds) for kind in value.kinds)
    if type(value) is not Container or not kinds:
        return False
    return name in ("add", "mul") or may_be_given(cell, False)


def refuse_functions(*values: Any) -> None:
    """A recording is given twins of functions that enter it: which are one, it cannot tell."""
    functions = (types.FunctionType, types.MethodType, partial)
    if is_recording() and any(isinstance(getattr(v, "obj", None), functions) for v in values):
        raise Untraceable("it compares functions")


def asks_user(x: Any, y: Any, name: str) -> bool:
    """Whether an operand is a user's object that says itself what an operator means."""
    if is_instance(x) or is_instance(y):
        return True
    if type(x) is Column and type(y) is Column:
        return False
    methods = ((x, f"__{name}__"), (y, backward(name)))
    if name == "ne":
        methods = (*methods, (x, "__eq__"), (y, "__eq__"))  # type: ignore[assignment]
    return any(own_method(value, method) is not None for value, method in methods)


def backward(name: str) -> str:
    """The method that the right operand is asked for."""
    return f"__{REFLECTED[name]}__" if name in REFLECTED else f"__r{name}__"


def asked_in_turn(name: str, left: Cell, right: Cell) -> list[tuple[str, Cell, Cell]]:
    """The methods that Python asks for an operator, each with its receiver and what it is given.

    An operand of a subclass of the other's class comes first, if it says something of its own;
    of two of one class only a comparison asks the other one too.
    """
    forward, reflected = (f"__{name}__", left, right), (backward(name), right, left)
    one, other = class_of(read(left)), class_of(read(right))
    if one is None or other is None:
        return [forward, reflected]
    if one is other:
        return [forward, reflected] if name in REFLECTED else [forward]
    if issubclass(other, one):
        method = backward(name)
        own = special_method(other, method)
        if name in REFLECTED or (own is not None and own is not special_method(one, method)):
            return [reflected, forward]
    return [forward, reflected]


def class_of(value: Any) -> type | None:
    """The class of an operand, where it is that of every thread's."""
    return type(value.obj) if type(value) is Uniform else user_class(value)


def instance_binary(
    context: Context,
    name: str,
    left: Cell,
    right: Cell,
    meaning: Any = None,
    is_asked: bool = False,
) -> Cell:
    """``x.__add__(y)``, then ``y.__radd__(x)``, as Python asks them.

    ``meaning`` is what is run thread by thread where neither has an answer. ``is_asked``: ``x`` has
    said that it does not know what ``x += y`` is.
    """
    asked, answer = {0} if is_asked else set(), uniform(NotImplemented)
    x, y = read(left), read(right)  # a call may leave them otherwise
    for method, receiver, other in asked_in_turn(name, left, right):
        value = x if receiver is left else y
        kind = value.type if is_instance(value) else None
        function = own_method(value, method) if kind is None else special_method(kind, method)
        if name == "mod" and receiver is left and class_of(value) in (str, bytes):
            break  # which say themselves what they mean
        if function is None or function is getattr(object, method, None):
            continue
        if kind is not None and is_generated(kind, function):
            fields = dataclass_operands(receiver, other)
            if fields is None and may_have(read(other), kind):
                break
            if fields is None:
                continue
            operator = name if receiver is left else REFLECTED[name]
            return binary(context, operator, *fields)
        answer = next_answer(context, answer, function, receiver, other)
        asked.add(0 if receiver is left else 1)
        if not lacks_answer(answer):
            return answer
    else:
        if name == "ne" and not asked and has_own(x, y, "__eq__"):
            return finished(context, partial(instance_binary, context, "eq", left, right), negation)
        if name in ("eq", "ne") and (asked or is_instance(x) or is_instance(y)):
            same = is_same if name == "eq" else is_other
            return next_answer(context, answer, same, left, right)
    meaning = meaning or semantics.SEMANTICS[name]
    if not asked:
        return run_rows(context, meaning, [left, right], {}, "objects")
    return next_answer(context, answer, Unanswered(meaning, frozenset(asked)), left, right)


def answered_otherwise(context: Context, name: str, answer: Cell, left: Cell, right: Cell) -> Cell:
    """What ``x.__iadd__(y)`` has said, or what ``x + y`` is."""
    if not lacks_answer(answer):
        return answer
    if type(read(answer)) is not Uniform:
        return next_answer(context, answer, semantics.SEMANTICS[name], left, right)
    return instance_binary(context, name, left, right, semantics.SEMANTICS[f"i{name}"], True)


def next_answer(context: Context, answer: Cell, function: Any, receiver: Cell, other: Cell) -> Cell:
    """What is said by a method, or in the end by Python, where there is no answer yet."""
    if type(read(answer)) is not Uniform:
        given = [answer, uniform(function, shared=True), receiver, other]
        return context.invoke(context, answered, given, {})
    if isinstance(function, Unanswered):
        return run_rows(context, function, [receiver, other], {}, "objects")
    return context.invoke(context, function, [receiver, other], {})


def lacks_answer(answer: Cell) -> bool:
    """Whether a method has none in some thread."""
    value = read(answer)
    if type(value) is Objects:
        return any(item is NotImplemented for item in value.items)
    return getattr(value, "obj", None) is NotImplemented


@dataclasses.dataclass(frozen=True, slots=True)
class Unanswered:
    """An operator whose operands, those of the places ``asked``, have said that they do not know.

    They are not asked again, nor is another of the same class, for which one has spoken: what
    stands for them has their class's name, and is an index alike.
    """

    meaning: Callable[[Any, Any], Any]
    asked: frozenset[int]

    def __call__(self, left: Any, right: Any) -> Any:
        asked = (0, 1) if type(left) is type(right) else self.asked
        given = (stand_in(v) if i in asked else v for i, v in enumerate((left, right)))
        return self.meaning(*given)


def stand_in(value: Any) -> Any:
    kind = type(value)
    index = getattr(kind, "__index__", None)
    return type(kind.__name__, (), {} if index is None else {"__index__": lambda _: index(value)})()


def has_own(left: Any, right: Any, method: str) -> bool:
    """Whether an operand's class says itself what a comparison means."""
    return any(
        own_method(value, method) is not None
        or (is_instance(value) and getattr(value.type, method) is not getattr(object, method))
        for value in (left, right)
    )


def is_generated(kind: type, function: Any) -> bool:
    """Whether a method is one that ``dataclasses`` has made, which has no source."""
    code = own_attribute(function, "__code__")
    return dataclasses.is_dataclass(kind) and code is not None and code.co_filename == "<string>"


def dataclass_operands(left: Cell, right: Cell) -> tuple[Cell, Cell] | None:
    """The tuples of fields by which two instances of one dataclass compare."""
    x, y = read(left), read(right)
    if type(y) is not Container or y.type is not x.type:  # type: ignore[union-attr]
        return None
    names = [field.name for field in dataclasses.fields(y.type) if field.compare]
    one, other = ([named_cells(value)[name] for name in names] for value in (x, y))  # type: ignore[arg-type]
    return Cell(Container(tuple, one)), Cell(Container(tuple, other))


def may_have(value: Any, kind: type) -> bool:
    """Whether some thread has an instance of a class that is an object of the host."""
    if type(value) is Uniform:
        return type(value.obj) is kind
    return type(value) is Objects and kind in value.kinds


def dunder(context: Context, meaning: Callable[..., Any], method: str, cells: list[Cell]) -> Cell:
    """A special method of a program-made instance; Python's own error if its class has none."""
    function = special_method(user_class(read(cells[0])), method)
    if function is None or function is getattr(object, method, None):
        return run_rows(context, meaning, cells, {}, "objects", keep=True)
    return context.invoke(context, function, cells, {})


def inplace(context: Context, name: str, left: Cell, right: Cell) -> Cell:
    """``x += y``: a write where ``x`` is a tensor, list, dict or set, else ``x + y``."""
    meaning = semantics.SEMANTICS[f"i{name}"]
    value = read(left)
    if type(value) is Container and value.type is PLACE:
        return merging_at.merge_item(context, meaning, left, right)
    if packs.is_packed(value):
        if writing.apply(context, meaning, [left, right], {}):
            return left
        packed.unpack(context, [left])
        value = read(left)
    is_packed = packs.is_packed(read(right))
    if is_packed and root_of(right) is not root_of(left):
        return packed.lent(context, [right], lambda: inplace(context, name, left, right))
    if is_tensor(value) and name != "matmul":  # tensors have no ``__imatmul__``
        if not is_packed and foreign_operand(value, read(right)):
            return kept(context, meaning, left, right)
        return writes.write(context, meaning, [left, right], {})
    if type(value) is Container and value.type is list and name == "add":
        parts = parts_of(right)
        if parts is not None:
            value.cells.extend(parts)  # type: ignore[union-attr]
            return left
    if is_instance(value) and special_method(value.type, f"__i{name}__"):
        method = getattr(value.type, f"__i{name}__")
        result = context.invoke(context, method, [left, right], {})
        return answered_otherwise(context, name, result, left, right)
    if type(value) is Container and value.type in (list, dict, set):
        return kept(context, meaning, left, right)
    if type(value) is Uniform and hasattr(value.obj, f"__i{name}__"):
        method = getattr(type(value.obj), f"__i{name}__")
        if effect_of(method) == "program":
            result = context.invoke(context, method, [left, right], {})
            return answered_otherwise(context, name, result, left, right)
        raise writes.shared_write(context, writes.described(value.obj))
    if type(value) is Objects and any(writable(item, f"__i{name}__") for item in value.items):
        return kept(context, meaning, left, right)
    return binary(context, name, left, right, meaning)


def writable(item: Any, method: str) -> bool:
    return isinstance(item, Tensor | list | dict | set | bytearray) or hasattr(item, method)


def kept(context: Context, meaning: Callable[..., Any], left: Cell, right: Cell) -> Cell:
    """In place on each thread's own object: the cell goes on if all give themselves back."""
    writes.refuse_foreign(context, left, "{}")
    result = run_rows(
        context, meaning, [left, right], {}, "objects", keep=True, fresh=False, once=True
    )
    before, after = read(left), result.value
    if type(before) is not Objects or type(after) is not Objects:
        return result
    same = all(a is b for a, b in zip(before.items, after.items, strict=True))
    return left if same else result
