"""The table of operations: traits hold for what the operations mean, the worst for the unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobatch.batching.semantics import SEMANTICS
from autobatch.ir import ops
from autobatch.ir.definitions import definitions_of
from autobatch.ir.ops import OPS, UNKNOWN, OpInfo, having, info
from autobatch.ir.reference import reference
from autobatch.passes.if_conversion import are_safe
from autobatch.passes.origins import OUTER, Sources
from autobatch.vm.purity import Analysis, Known, Names
from tests.building import Lines, block, function
from tests.goldens import assert_golden

SETS = ("PURE", "HOST", "RECORDED", "WRITES", "STORES", "SAFE", "MOVES", "FREE", "INPLACE")
NUMBERS = st.one_of(st.booleans(), st.integers(-5, 5), st.floats(-4, 4))


def test_what_is_unknown_is_in_no_set():
    assert info("warp") is UNKNOWN
    for name in SETS:
        assert "warp" not in getattr(ops, name)
    undeclared = OpInfo("nothing is declared of it", 1)
    assert (undeclared.effect, undeclared.result, undeclared.stretch) == (
        "unknown",
        "outer",
        "never",
    )


def test_what_is_unknown_is_treated_as_the_worst():
    at = Lines()
    op = at.op("y = warp x")
    strange = function("f", "x", block(op, at.give("y")))
    assert not are_safe([op])
    assert Sources(strange).of["y"] == {OUTER}
    known = Known(strange, Names({}), definitions_of(strange))
    assert not Analysis(known, lambda found: None, lambda name: False).purity().is_pure


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", sorted(having(lambda op: op.commutative)))
@given(left=NUMBERS, right=NUMBERS)
def test_commutative(name, left, right):
    rule = SEMANTICS[name]
    if name in ("and", "or", "xor"):
        left, right = int(left), int(right)
    assert rule(left, right) == rule(right, left)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", sorted(having(lambda op: op.safe and op.arity in (1, 2))))
@given(left=st.integers(-5, 5), right=st.integers(-5, 5))
def test_safe_on_numbers(name, left, right):
    """The one exception is a division, whose recording has a check."""
    operands = (left, right)[: OPS[name].arity]
    if name in ("truediv", "itruediv") and not right:
        return
    SEMANTICS[name](*operands)


def test_operations_without_outs_write_or_bind():
    for name, declared in OPS.items():
        if not declared.outs:
            assert declared.effect in ("writes", "binds"), name


def test_golden_reference():
    assert_golden("ops_reference", f"{reference()}\n")
