"""Types in the text: what is known, that it is true of every run, and that it reads back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import autobatch
from autobatch.errors import ParseError
from autobatch.ir.call_types import with_types
from autobatch.ir.inference import BOOL, noted, result, types_before
from autobatch.ir.links import Link, links_of
from autobatch.ir.types import DTYPES, Type, joined, of_text
from tests.building import Lines, block, function
from tests.goldens import assert_golden
from tests.through_text import same

INT, FLOAT, TENSOR = Type("int"), Type("float"), Type("tensor")
ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "lt", "eq")
BITS = ("and", "or", "xor", "lshift", "rshift")
SIGNS: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "truediv": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "matmul": lambda a, b: a @ b,
    "pow": lambda a, b: a**b,
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "lshift": lambda a, b: a << b,
    "rshift": lambda a, b: a >> b,
}


def type_of(value: object) -> Type:
    if isinstance(value, Tensor):
        name = str(value.dtype).removeprefix("torch.")
        return Type("tensor", "bool_" if name == "bool" else name, tuple(value.shape))
    return Type("None" if value is None else type(value).__name__)


def covers(known: Type, found: Type) -> bool:
    """Whether what is known holds of a value."""
    if known.kind != found.kind or known.dtype not in ("", found.dtype):
        return False
    if known.shape is None or found.shape is None:
        return known.shape is None
    sizes = zip(known.shape, found.shape, strict=False)
    return len(known.shape) == len(found.shape) and all(a in (None, b) for a, b in sizes)


def operands() -> Iterator[object]:
    yield from (True, 3, -2, 0.5)
    for dtype in (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool):
        for shape in ((), (2,), (2, 2), (1, 2), (0, 2)):
            yield torch.ones(shape, dtype=dtype)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SIGNS)
def test_what_operators_give(name: str):
    """For every pair of operands for which the operator gives something at all."""
    known = 0
    for left in operands():
        for right in operands():
            op = Lines().op(f"y = {name} a, b")
            said = result(op, {"a": type_of(left), "b": type_of(right)})
            try:
                found = SIGNS[name](left, right)
            except (TypeError, RuntimeError, ValueError, IndexError):
                continue
            assert said is None or covers(said, type_of(found)), (left, right)
            known += said is not None
    assert known > 100 or name in ("matmul", *BITS)


@pytest.mark.parametrize("name", ["neg", "pos", "invert", "not", "truth"])
@pytest.mark.parametrize("value", [True, 3, 0.5, torch.ones(2), torch.ones(1, dtype=torch.int32)])
def test_what_signs_give(name: str, value: Any):
    said = result(Lines().op(f"y = {name} a"), {"a": type_of(value)})
    signs: dict[str, Any] = {"neg": lambda a: -a, "pos": lambda a: +a, "invert": lambda a: ~a}
    try:
        found = signs.get(name, bool)(value)
    except (TypeError, RuntimeError):
        return
    assert said is not None and covers(said, type_of(found))


SIZES = st.one_of(st.none(), st.integers(0, 12))
TYPES = st.one_of(
    st.sampled_from([Type(kind) for kind in ("None", "bool", "int", "float", "str")]),
    st.builds(
        Type,
        st.just("tensor"),
        st.sampled_from(["", *sorted(DTYPES)]),
        st.one_of(st.none(), st.lists(SIZES, max_size=3).map(tuple)),
    ),
)


@given(TYPES)
def test_types_read_back(kind: Type):
    assert of_text(str(kind)) == kind


@given(TYPES, TYPES, TYPES)
def test_what_holds_of_two_holds_of_each(one: Type, other: Type, value: Type):
    both = joined(one, other)
    assert both == joined(other, one)
    if (
        both is not None
        and value.shape is not None
        and (covers(one, value) or covers(other, value))
    ):
        assert covers(both, value)


@pytest.mark.parametrize("text", ["", "long", "int[3]", "tensor[3", "float32[a]", "tensor[3,]"])
def test_what_is_no_type(text: str):
    assert of_text(text) is None


# Functions.


def halving(x, rate):
    steps = 0
    while steps < 8:
        y = x @ x + rate
        x = y - y * 0.5
        steps += 1
    return x, steps / 2, y.sum()


SHAPES = {"x": (3, 3), "rate": (None,)}


def test_types_stand_in_the_text():
    program = autobatch.lower(halving, in_shapes=SHAPES)
    assert_golden("types", re.sub(" +# .*", "", f"{program.main}\n"))
    assert same(program) == program
    xs, rates = torch.ones(2, 3, 3) / 9, torch.ones(2, 3)
    read = autobatch.parse(str(program), program.objects)
    for one, other in zip(
        autobatch.execute(program, xs, rates), autobatch.execute(read, xs, rates), strict=True
    ):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "old, new, message",
    [
        (": int =", ": float =", "it is int that this operation gives"),
        ("tensor[3, 3] = mul", "tensor[3] = mul", "it is tensor\\[3, 3\\] that this operation"),
        (": int =", ": long =", "expected a type, as int"),
        ("%return =", "%return: int =", "nothing is known of what this operation gives"),
    ],
)
def test_a_type_that_is_not_so(old: str, new: str, message: str):
    text = str(autobatch.lower(halving, in_shapes=SHAPES))
    assert old in text
    with pytest.raises(ParseError, match=message):
        autobatch.parse(text.replace(old, new, 1))


def test_types_need_not_be_said():
    program = autobatch.lower(halving, in_shapes=SHAPES)
    bare = str(program).replace(": int =", " =")
    read = autobatch.parse(bare)
    assert read == program
    assert ": int" not in str(read) and ": bool" in str(read)


def test_what_calls_itself_says_nothing_of_its_inputs():
    def twice(x, depth):
        y = x * 2
        return y if depth > 2 else twice(y.sum(), depth + 1)

    program = autobatch.lower(twice, in_shapes={"x": (3,)})
    assert "tensor" not in str(program)


def test_a_call_may_change_a_shape():
    at = Lines()
    ops = (at.op("y = mul x, x"), at.op("%1 = getattr y", "unsqueeze_"), at.op("%2 = call %1"))
    made = function("f", "x", block(*ops, at.op("z = add y, y"), at.give("z")))
    kind = Type("tensor", "float32", (3,))
    assert noted(made, {"x": kind}) == ((kind, None, None, TENSOR),)


def test_ways_that_meet():
    at = Lines()
    made = function(
        "f",
        "x",
        block(at.branch("x", 1, 2)),
        block(at.op("a = const", 1), at.op("b = const", 1), at.jump(3)),
        block(at.op("a = const", 2), at.op("b = const", 2.0), at.jump(3)),
        block(at.op("y = add a, a"), at.op("z = add a, b"), at.op("w = lt a, a"), at.give("y")),
    )
    assert types_before(made.blocks)[3] == {"a": INT}
    assert noted(made)[3] == (INT, None, BOOL)
    assert joined(INT, FLOAT) is None


def test_another_pass_takes_the_note_away():
    def emptied(made):
        return replace(made, blocks=tuple(replace(each, modes=()) for each in made.blocks))

    program = autobatch.lower(halving, passes=["note_types"])
    assert ": int" in str(program)
    assert ": int" not in str(autobatch.lower(halving, passes=["note_types", emptied]))


# Calls.


def doublings(x, limit):
    n = 0
    while x < limit and n < 9:
        x = x * 2
        n += 1
    return n


def ratio(n):
    return (n + 1) / 2


def factorial(n):
    return 1 if n <= 1 else n * factorial(n - 1)


def is_even(n):
    return True if n == 0 else is_odd(n - 1)


def is_odd(n):
    return False if n == 0 else is_even(n - 1)


def either(x):
    return 1 if x > 0 else 2.0


def forever(n):
    return forever(n + 1)


def shaped(x, k):
    y = x * k
    if k > 3:
        y = y + 1.0
    return y


def grown(x):
    x.unsqueeze_(0)
    if x.numel() > 3:
        return 1
    return 2


def calling(x, n):
    y = shaped(x, 2.0)
    z = y @ y
    count = doublings(n, 3.0)
    half = ratio(count) * 2
    fact = factorial(5)
    even = is_even(3)
    other = either(n)
    if n > 100:
        other = forever(3) + 1
    return z, half, fact, even, other


def growing(x, n):
    y = x * 2
    k = grown(y)
    return y + k


def test_what_calls_give_stands_in_the_text():
    program = autobatch.lower(calling, in_shapes={"x": (3, 3), "n": ()})
    assert_golden("call_types", re.sub(" +# .*", "", f"{program.main}\n"))
    assert autobatch.parse(str(program)) == program
    assert str(autobatch.parse(str(program))) == str(program)
    text = str(program.main)
    assert "-> fact: int, then" in text and "-> even: bool, then" in text
    assert "-> other, then" in text and "-> y: tensor[3, 3], then" in text


def test_what_calls_give_is_so():
    values = {"count": doublings(0.5, 3.0), "fact": factorial(5), "even": is_even(3)}
    values["y"] = shaped(torch.ones(3, 3), 2.0)
    text = str(autobatch.lower(calling, in_shapes={"x": (3, 3)}).main)
    for name, value in values.items():
        (said,) = re.findall(rf"-> {name}: (.*), then", text)
        assert covers(of_text(said), type_of(value))


def test_a_call_that_may_write_leaves_no_shape():
    text = str(autobatch.lower(growing, in_shapes={"x": (3,)}).main)
    assert "y: tensor[3] = mul" in text and "-> k: int, then" in text
    assert "%return: tensor = add y, k" in text


class Counter:
    def __init__(self, other=None):
        self.other = other

    def width(self, x):
        return 3

    def counted(self, x):
        y = self.width(x)
        return y + self.grown(x)

    def grown(self, x):
        return x * 2

    def of_the_other(self, x):
        y = self.width(x)
        return y + self.other.width(x)


class Wide(Counter):
    def width(self, x):
        return 3.5


def test_what_methods_give_stands_in_the_text():
    program = autobatch.lower(Counter().counted, in_shapes={"x": (3,)})
    text = str(program.main)
    assert "-> y: int, then" in text and "%return: tensor = add y" in text
    assert autobatch.parse(str(program), program.objects) == program
    assert "-> y: float, then" in str(autobatch.lower(Wide().counted).main)
    counter = Counter()
    counter.width = lambda x: 0.5
    assert "y = call" in str(autobatch.lower(counter.counted).main)


def test_what_methods_of_several_objects_give_is_not_known():
    assert "-> y, then" in str(autobatch.lower(Counter(Wide()).of_the_other).main)


def test_another_function_of_that_name_is_not_meant(monkeypatch):
    """Names mean what they mean to the program's callable."""
    program = autobatch.lower(calling)
    assert links_of(program)["calling"]["%8"] == Link("factorial")
    monkeypatch.setitem(globals(), "factorial", halving)
    assert "%8" not in links_of(program)["calling"]
    assert "-> fact, then" in str(with_types(program).main)
    by_name = replace(program, callable=None)  # there is no other that they could mean
    assert links_of(by_name)["calling"]["%8"] == Link("factorial")


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("-> fact: int,", "-> fact: float,", "it is int that this operation gives"),
        ("-> other,", "-> other: int,", "nothing is known of what this operation gives"),
        ("-> fact: int,", "-> fact: long,", "expected a type, as int"),
    ],
)
def test_a_type_of_a_call_that_is_not_so(old: str, new: str, message: str):
    text = str(autobatch.lower(calling, in_shapes={"x": (3, 3)}))
    assert old in text
    with pytest.raises(ParseError, match=message):
        autobatch.parse(text.replace(old, new, 1))
