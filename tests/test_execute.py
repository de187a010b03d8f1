"""``execute``: programs as they stand, inputs checked by name, leaves in the order of out_vars."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch

import autobatch
from autobatch import OptionError, Program, StackingError, execute, lower
from autobatch.errors import VerifierError
from autobatch.llvm import is_installed
from tests.building import Lines, block, collatz, function, params

ENGINES = pytest.mark.parametrize("engine", ["stackless", "program_counter", "sequential"])


def stepped(x, y, *, scale=2.0):
    n = 0
    while x.sum() < 10:
        x = x * scale
        n += 1
    return {"n": n, "pair": (x, y)}


def tree_size(tree):
    return 1 + sum(tree_size(kid) for kid in tree)


def factorial(n):
    return 1 if n <= 1 else n * factorial(n - 1)


def total(first, *rest):
    for x in rest:
        first = first + x
    return first


def pair(x):
    made = (x, x + 1)
    return made


@ENGINES
def test_leaves_in_the_order_of_out_vars(engine):
    program = lower(stepped)
    assert program.out_vars == ("out.n", "out.pair.0", "out.pair.1")
    x, y = torch.rand(4, 3) + 0.1, torch.arange(4)
    n, left, right = execute(program, x, y, engine=engine)
    expected = [stepped(*row) for row in zip(x, y, strict=True)]
    assert n.tolist() == [row["n"] for row in expected] and n.dtype == torch.int64
    assert torch.allclose(left, torch.stack([row["pair"][0] for row in expected]))
    assert right.tolist() == [0, 1, 2, 3]


@ENGINES
def test_keyword_only_inputs_come_last(engine):
    x, y = torch.ones(2, 3), torch.zeros(2)
    n, *_ = execute(lower(stepped), x, y, torch.tensor([4.0, 1.5]), engine=engine)
    assert n.tolist() == [1, 3]


def test_a_result_without_a_display_is_one_leaf():
    program = lower(pair)
    assert program.out_vars == ("out",)
    (leaf,) = execute(program, torch.arange(3))
    assert type(leaf) is tuple and leaf[1].tolist() == [1, 2, 3]


@ENGINES
def test_one_leaf_of_numbers_and_of_objects(engine):
    assert execute(lower(factorial), [3, 4, 5], engine=engine)[0].tolist() == [6, 24, 120]
    (large,) = execute(lower(factorial), [3, 25], scalars="python", engine=engine)
    assert large == [6, factorial(25)]
    trees = autobatch.objects([[], [[], [[]]]])
    assert execute(lower(tree_size), trees, engine=engine)[0].tolist() == [1, 4]


def test_star_args():
    ones = torch.ones(3)
    assert execute(lower(total), ones, ones, ones, ones)[0].tolist() == [4, 4, 4]
    assert execute(lower(total), ones)[0].tolist() == [1, 1, 1]


@ENGINES
def test_what_is_bound_takes_no_input(engine):
    @dataclass(frozen=True)
    class Scaler:
        factor: float

        def scale(self, x, y=0.0):
            return x * self.factor + y

    scaler = Scaler(3.0)
    assert execute(lower(scaler.scale), torch.ones(2), engine=engine)[0].tolist() == [3, 3]
    module = torch.nn.Sequential()

    class Doubled(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x > 0 else module(x)

    (result,) = execute(lower(Doubled()), torch.tensor([1.0, -1.0]), engine=engine)
    assert result.tolist() == [2, -1]


def test_a_partial():
    program = lower(partial(stepped, scale=3.0))
    n, *_ = execute(program, torch.ones(2, 3), torch.zeros(2))
    assert n.tolist() == [2, 2]
    with pytest.raises(OptionError, match="3 inputs"):
        execute(program, torch.ones(2, 3), torch.zeros(2), torch.zeros(2))


# Programs that were made by hand.


@ENGINES
@pytest.mark.parametrize("called", [None, print, torch.sin])
def test_a_program_that_no_function_belongs_to(engine, called):
    program = Program({"collatz": collatz()}, "collatz", called, ("out",))
    (steps,) = execute(program, torch.arange(1, 9), engine=engine)
    assert steps.tolist() == [0, 1, 7, 2, 5, 8, 16, 3]


@ENGINES
def test_a_changed_program_runs_as_it_stands(engine):
    """Also where it calls itself; the function of its callable does not run."""
    program = lower(factorial)
    changed = replace(program.main, blocks=tuple(map(plus_for_times, program.main.blocks)))
    program = replace(program, functions={program.entry: changed})
    (sums,) = execute(program, torch.tensor([1, 4]), engine=engine)
    assert sums.tolist() == [1, 10]
    assert autobatch.vmap(factorial)(torch.tensor([4])).tolist() == [24]


def plus_for_times(old):
    ops = [replace(op, name="add") if op.name == "mul" else op for op in old.ops]
    return replace(old, ops=tuple(ops))


def source_less():
    space = {"helper": factorial}
    exec("def outer(n):\n    return helper(n) + 1\n", space)
    return space["outer"]


@ENGINES
def test_callees_are_found_by_identity(engine):
    """The callable has no source; its globals say what ``helper`` is."""
    at = Lines()
    main = function(
        "outer",
        "n",
        block(at.op("%1 = global", "helper"), at.call("%2", "%1", "n", 1)),
        block(at.op("%3 = const", 1), at.op("%4 = add %2, %3"), at.give("%4")),
    )
    program = Program({"outer": main}, "outer", source_less(), ("out",))
    assert execute(program, torch.tensor([3, 4]), engine=engine)[0].tolist() == [7, 25]


def test_a_program_by_hand_is_verified():
    at = Lines()
    main = function("broken", "n", block(at.op("m = neg n, n"), at.give("m")))
    with pytest.raises(VerifierError, match="neg"):
        execute(Program({"broken": main}, "broken", None, ("out",)), torch.ones(2))


def test_captured_variables_need_a_callable_that_has_them():
    at = Lines()
    main = function("inner", "n", block(at.op("%1 = load_free", "w"), at.give("%1")), free=("w",))
    for called in (None, pair):
        with pytest.raises(OptionError, match=r"captured variables.*w"):
            execute(Program({"inner": main}, "inner", called, ("out",)), torch.ones(2))


def test_out_vars_that_the_result_does_not_have():
    main = function("same", params("x"), block(Lines().give("x")))
    program = Program({"same": main}, "same", None, ("out.0", "out.1"))
    with pytest.raises(StackingError, match=r"no out\.0, out\.1"):
        execute(program, torch.ones(2))


# Inputs and options that cannot be.


@pytest.mark.parametrize(
    "inputs, message",
    [
        ((), "no input for x"),
        ((torch.ones(4, 3),), "no input for y"),
        ((torch.ones(4, 3), torch.ones(3)), "x has 4, y has 3"),
        ((torch.ones(4, 3), 3), "input y is of type int"),
        ((torch.ones(4, 3), torch.tensor(1.0)), "input y is a 0-d tensor"),
        ((1, 2, 3, 4), "4 inputs for stepped, whose inputs are: x, y, scale"),
    ],
)
def test_bad_inputs_are_named(inputs, message):
    with pytest.raises(OptionError, match=message):
        execute(lower(stepped), *inputs)


def test_defaults_are_the_functions():
    at = Lines()
    optional = tuple(replace(param, has_default=True) for param in params("x"))
    main = function("same", optional, block(at.give("x")))
    program = Program({"same": main}, "same", None, ("out",))
    assert execute(program, np.ones(2))[0].tolist() == [1, 1]
    with pytest.raises(OptionError, match="no input for x"):
        execute(program)


def test_declared_event_shapes_are_checked():
    declared = lower(pair, in_shapes={"x": [3, None]})
    assert declared.in_shapes == {"x": (3, None)} and lower(pair).in_shapes == {}
    for width in (0, 4):
        assert execute(declared, torch.ones(2, 3, width))[0][0].shape == (2, 3, width)
    for shape in ((2, 4, 1), (2, 3), (2,), (2, 3, 1, 1)):
        found = re.escape(str(list(shape[1:])))
        with pytest.raises(
            OptionError, match=rf"input x has the event shape {found}, .*declares \[3, \*\]"
        ):
            execute(declared, torch.ones(shape))


def test_declared_event_shapes_of_numbers_arrays_objects_and_star_args():
    declared = lower(total, {"first": (), "rest": (2,)})
    (sums,) = execute(declared, [1, 2], np.ones((2, 2)), torch.ones(2, 2))
    assert sums.tolist() == [[3, 3], [4, 4]]
    with pytest.raises(OptionError, match=r"input rest\[1\] has the event shape \[\]"):
        execute(declared, [1, 2], np.ones((2, 2)), [3, 4])
    objects = autobatch.objects([torch.ones(2), torch.ones(3)])
    with pytest.raises(OptionError, match=r"object 1 of the input rest\[0\] .*shape \[3\]"):
        execute(declared, [1, 2], objects)
    with pytest.raises(OptionError, match=r"object 1 of the input first has no shape"):
        execute(declared, autobatch.objects([1, "a"]))
    large = autobatch.objects([1, 2**70])
    assert execute(lower(pair, {"x": ()}), large)[0][1] == [2, 2**70 + 1]


def test_declared_event_shapes_that_cannot_be():
    with pytest.raises(OptionError, match=r"in_shapes of pair: .*'y'.*the inputs are: x"):
        lower(pair, {"y": (3,)})
    with pytest.raises(OptionError, match=r"shape of x is \(-1,\)"):
        lower(pair, {"x": (-1,)})
    with pytest.raises(OptionError, match=r"shape of x is 3"):
        lower(pair, {"x": 3})
    with pytest.raises(OptionError, match=r"in_shapes is \(3,\)"):
        lower(pair, (3,))
    typo = replace(lower(pair), in_shapes={"X": (3,)})
    with pytest.raises(OptionError, match=r"program pair is not valid: .*'X'"):
        execute(typo, torch.ones(2, 3))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"in_dims": 0}, "'in_dims'"),
        ({"out_dims": 0}, "'out_dims'"),
        ({"speed": 3}, "'speed'"),
        ({"max_steps": 0}, "max_steps is 0"),
        ({"block_code_cache": 3}, "block_code_cache is 3"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(OptionError, match=message):
        execute(lower(pair), torch.ones(2), **options)


def test_what_is_no_program():
    with pytest.raises(OptionError, match=r"autobatch\.lower"):
        execute(pair, torch.ones(2))


def test_options_are_respected():
    steps = []
    execute(lower(factorial), torch.tensor([3, 4, 5]), listeners=steps.append, chunk_size=2)
    assert {len(step.mask) for step in steps} == {3}
    with pytest.raises(autobatch.StepLimitError):
        execute(lower(factorial), torch.tensor([9]), max_steps=3)


def settle(x):
    while x > 0.1:
        x = x.sin() * 0.9
    return x


def test_a_cache_outlives_the_call():
    program = lower(settle)
    traces = []
    for cache in (None, None, kept := {}, kept, kept):
        with autobatch.counts() as found:
            (got,) = execute(program, XS, block_code_cache=cache, trace_after=0)
        torch.testing.assert_close(got, torch.stack([settle(x) for x in XS]))
        traces.append(found.traces)
    first = traces[0]
    assert first > 0 and traces == [first, first, first, 0, 0]


XS = torch.linspace(0.2, 1.0, 7)


def collatz_steps(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@pytest.mark.skipif(not is_installed(), reason="needs llvmlite")
def test_machine_code_is_kept_too():
    program, n = lower(collatz_steps), torch.arange(1, 30)
    wanted = [collatz_steps(int(each)) for each in n]
    compilations = []
    for cache in (None, None, kept := {}, kept, kept):
        with autobatch.counts() as found:
            (got,) = execute(program, n, block_code_cache=cache, executor="compiled")
        assert got.tolist() == wanted
        compilations.append(found.compilations)
        # One step for the launch; a way back for each round but the one that the loop begins with.
        assert (found.block_executions, found.launches) == (1, 1)
        assert found.iterations == sum(max(steps - 1, 0) for steps in wanted)
    assert compilations == [1, 1, 1, 0, 0]
    with autobatch.counts() as found:  # another program of the same function is another one
        execute(lower(collatz_steps), n, block_code_cache=kept, executor="compiled")
    assert found.compilations == 1


def test_what_is_one_operation_is_a_program_that_calls_it():
    linear, xs = torch.nn.Linear(3, 2), torch.randn(4, 3)
    for func in (linear, torch.nn.Sequential(linear, torch.nn.ReLU()), torch.sin):
        program = autobatch.lower(func)
        for options in ({}, {"trace_after": 0, "plain": "never"}, {"engine": "sequential"}):
            (result,) = autobatch.execute(program, xs, **options)
            torch.testing.assert_close(result, func(xs))


FACTORIAL = """
program main -> out

function main(n):
  b0:
    %1 = global factorial
    %2 = const 1
    call %1(n, one=%2) -> %3, then b1
  b1:
    %4 = global twice
    %5 = call %4(%3)
    %6 = global len
    %7 = tuple %5, %5
    %8 = call %6(%7)
    %9 = add %5, %8
    return %9

function factorial(n, one):
  b0:
    %1 = le n, one
    branch %1 ? b1 : b2
  b1:
    out = copy one
    jump b4
  b2:
    %2 = sub n, one
    %3 = global factorial
    call %3(%2, one) -> %4, then b3
  b3:
    out = mul n, %4
    jump b4
  b4:
    return out

function twice(x):
  b0:
    %1 = add x, x
    return %1
"""


@ENGINES
@pytest.mark.parametrize("executor", ["vmap", "traced", "compiled"])
def test_functions_of_a_text_call_each_other(engine, executor):
    """No Python function belongs to it: its global names mean its functions, then builtins."""
    n = torch.tensor([1, 5, 3, 0, 4, 2, 5])
    options = {"engine": engine, "executor": executor, "trace_after": 0}
    for _ in range(2):
        (found,) = execute(autobatch.parse(FACTORIAL), n, **options)
        assert found.tolist() == [2 * math.factorial(each) + 2 for each in n.tolist()]


def test_a_default_that_no_function_has_has_to_be_given():
    text = FACTORIAL.replace("function factorial(n, one)", "function factorial(n, one=...)")
    assert execute(autobatch.parse(text), torch.tensor([3]))[0].tolist() == [14]
    text = text.replace("call %1(n, one=%2)", "call %1(n)")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'one'"):
        execute(autobatch.parse(text), torch.tensor([3]))


def scaled(x, by):
    if x > 2:
        return helped(x) * by
    return helped(x + by)


def helped(x):
    while x < 10:
        x = x + 3
    return x


@ENGINES
@pytest.mark.parametrize("passes", [None, []])
def test_callees_run_as_the_program_has_them(engine, passes):
    """Not as Python has them: of a text that was changed, and of a program that a pass changed."""
    program = lower(scaled, passes=passes)
    text = re.sub(r"const 3\b", "const 5", str(program))
    changed = replace(program, functions={**program.functions, "helped": fives(program)})
    for each in (changed, autobatch.parse(text)):
        assert each.functions["scaled"] == program.functions["scaled"]
        (found,) = execute(each, torch.tensor([1, 3, 9]), torch.tensor([2, 2, 2]), engine=engine)
        assert found.tolist() == [13, 26, 28]
    (found,) = execute(program, torch.tensor([1, 3, 9]), torch.tensor([2, 2, 2]), engine=engine)
    assert found.tolist() == [12, 24, 24]


def fives(program):
    def five(op):
        return replace(op, attr=5) if op.name == "const" and op.attr == 3 else op

    old = program.functions["helped"]
    blocks = [replace(block, ops=tuple(map(five, block.ops))) for block in old.blocks]
    return replace(old, blocks=tuple(blocks))


def test_a_callee_of_the_texts_own_lines_runs_in_place_of_pythons():
    """A function that is written into the text has no place but there."""
    head, _ = str(lower(scaled)).split("function helped", 1)
    own = "function helped(x):\n  b0:\n    %1 = const 100\n    return %1\n\n"
    tail = f"callable = <{scaled.__module__}.scaled>\n\nobjects\n  <{scaled.__module__}.scaled>: "
    program = autobatch.parse(f"{head}{own}{tail}imported\n")
    assert execute(program, torch.tensor([1, 3]), torch.tensor([2, 2]))[0].tolist() == [100, 200]
