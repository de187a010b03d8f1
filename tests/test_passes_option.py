"""``passes=``: passes of one's own, by name or as callables, wherever programs are lowered."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import autobatch
from autobatch import OptionError, lower
from autobatch.errors import VerifierError
from autobatch.passes import PIPELINE, run_passes, simplify
from autobatch.vm.library import MOST_LIBRARIES, Library


def factorial(n):
    return 1 if n <= 1 else n * factorial(n - 1)


def doubled(x):
    y = x + x
    while y < 10:
        y = y + x
    return y


def plus_for_times(function):
    def changed(op):
        return replace(op, name="add") if op.name == "mul" else op

    blocks = (replace(b, ops=tuple(map(changed, b.ops))) for b in function.blocks)
    return replace(function, blocks=tuple(blocks))


def without_return(function):
    return replace(function, blocks=function.blocks[:-1])


def failing(function):
    raise KeyError(function.name)


def nothing(function):
    return None


ENGINES = [{"executor": "traced", "trace_after": 0}, {"engine": "program_counter"}]
ENGINES += [{"engine": "sequential"}, {"fork": "off"}]


@pytest.mark.parametrize("options", ENGINES)
@pytest.mark.parametrize(
    "passes",
    [[plus_for_times], [*PIPELINE, plus_for_times], ["simplify", plus_for_times, "order_blocks"]],
)
def test_a_pass_of_ones_own_runs(passes, options):
    """Also where it is the last, after liveness has been noted; and in all that is called."""
    n = torch.tensor([1, 4, 3])
    mapped = autobatch.vmap(factorial, passes=passes, **options)
    assert mapped(n).tolist() == [1, 10, 6]
    assert autobatch.vmap(factorial, **options)(n).tolist() == [1, 24, 6]


def test_no_pass_at_all():
    plain, optimised = lower(doubled, passes=[]), lower(doubled)
    assert len(plain.main.blocks) > len(optimised.main.blocks)
    assert run_passes(plain.main) == optimised.main
    x = torch.tensor([1, 7])
    assert autobatch.vmap(doubled, passes=[])(x).tolist() == [10, 14]
    assert [leaf.tolist() for leaf in autobatch.execute(plain, x)] == [[10, 14]]


def test_where_options_go():
    decorated = autobatch.function(passes=[plus_for_times])(factorial)
    four = torch.tensor([4])
    assert decorated.batch(four).tolist() == [10]
    assert autobatch.explain(decorated, four).result.tolist() == [10]
    results = autobatch.stream(factorial, [4, 3], passes=[plus_for_times])
    assert dict(results) == {0: 10, 1: 6}
    with pytest.raises(OptionError, match="a program runs as it stands"):
        autobatch.execute(lower(factorial), four, passes=[])


@pytest.mark.parametrize("run", [lower, lambda f, passes: autobatch.vmap(f, passes=passes)(ONE)])
def test_a_fault_names_the_pass(run):
    with pytest.raises(VerifierError, match="After without_return the program is not valid"):
        run(doubled, passes=[simplify, without_return])
    with pytest.raises(OptionError, match="The pass nothing gives None"):
        run(doubled, passes=[nothing])
    with pytest.raises(KeyError) as caught:
        run(doubled, passes=[simplify, failing])
    assert "The pass failing raised this, given the function doubled." in caught.value.__notes__


ONE = torch.ones(1)


@pytest.mark.parametrize("passes", ["simplify", ["simplfy"], [3], 3])
def test_what_is_no_pass(passes):
    with pytest.raises(OptionError, match="passes"):
        lower(doubled, passes=passes)
    with pytest.raises(OptionError, match="passes"):
        autobatch.vmap(doubled, passes=passes)


def test_libraries_are_kept_and_few():
    library = Library()
    assert library.under(None) is library and library.under(PIPELINE) is library
    assert library.under((simplify,)) is library.under((simplify,))
    for _ in range(MOST_LIBRARIES + 3):
        library.under((lambda function: function,))
    assert len(library.others) == MOST_LIBRARIES


class Unhashable:
    __hash__ = None

    def __call__(self, function):
        return function


def test_a_pass_needs_a_hash():
    with pytest.raises(OptionError, match="with a hash"):
        lower(doubled, passes=[Unhashable()])
