"""Fork-join calls: as wide as the recursion, as the plain loop in all that can be seen."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autobatch
from autobatch.api import LIBRARY
from autobatch.vm.code import Code
from autobatch.vm.purity import Names
from programs.fibonacci import fibonacci
from programs.treelstm import Tree, TreeLSTM
from tests.goldens import assert_golden
from tests.oracle import assert_matches_loop
from tests.sweeps import case


def forked(func: Callable[..., Any], receiver: Any = None) -> Code:
    given = () if receiver is None else (receiver,)
    return LIBRARY.with_forks(LIBRARY.code_of(func, *given), Names.of(func, *given))


def joins(func: Callable[..., Any]) -> int:
    return str(forked(func).function).count("join, then")


@dataclass
class Node:
    value: float
    children: list[Node] = field(default_factory=list)


def tree(seed: int, depth: int = 4) -> Node:
    count = (seed * 7 + depth * 3) % 4 if depth else 0
    return Node(seed % 5 - 1.5, [tree(seed * 3 + i + 1, depth - 1) for i in range(count)])


def as_tuples(node: Node) -> tuple[float, list[Any]]:
    return node.value, [as_tuples(child) for child in node.children]


TREES = [tree(seed) for seed in range(7)]
TUPLES = [as_tuples(node) for node in TREES]
BATCHES = (0, 1, 2, 7)


# Forms in which calls are independent.


def in_one_expression(n):
    if n < 2:
        return n
    return in_one_expression(n - 1) + in_one_expression(n - 2)


def in_a_tuple(n):
    if n < 2:
        return n, 1
    (a, b), (c, d) = in_a_tuple(n - 1), in_a_tuple(n - 2)
    return a + d, b + c


def in_branches(n):
    """Ways that meet: threads on either side call as one."""
    if n <= 1:
        return 0
    steps = in_branches(n // 2) if n % 2 == 0 else in_branches(3 * n + 1)
    return steps + 1


def under_conditions(node):
    left = under_conditions(node.children[0]) if node.children else 1.0
    right = under_conditions(node.children[-1]) if len(node.children) > 1 else 2.0
    return left * 0.5 + right + node.value


def in_a_comprehension(node):
    return [node.value, *[in_a_comprehension(c)[0] * 2.0 for c in node.children]]


def first_of_comprehension(node):
    return sum(in_a_comprehension(node))


def in_a_sum(node):
    return sum(in_a_sum(c) for c in node.children) + node.value


def in_a_loop(node):
    total = node.value
    for child in node.children:
        total = total + in_a_loop(child) * 0.5
    return total


def in_place_in_a_loop(node):
    total = 0
    for child in node.children:
        total += in_place_in_a_loop(child)
    return total + node.value


def appended(node):
    found = []
    for child in node.children:
        found.append(appended(child))
    return node.value + sum(found) * len(found)


def appended_of_tuples(node):
    found = []
    for child in node[1]:
        found.append(appended_of_tuples(child))
    return node[0] + sum(found)


def of_tuples_by_another(node):
    return node[0] + sum([the_other(child) * 2.0 for child in node[1]])


def the_other(node):
    return 0.5 - of_tuples_by_another(node)


def list_of_tuples(node):
    """A new list, which its caller writes."""
    found = [node[0]]
    for child in node[1]:
        inner = list_of_tuples(child)
        inner.append(1.0)
        found.append(sum(inner))
    return found


def summed_lists_of_tuples(node):
    return sum(list_of_tuples(node))


def sum_returned(node):
    total = 0
    for child in node.children:
        total += sum_returned(child) + child.value
    return total


def list_returned(node):
    found = []
    for child in node.children:
        found.append(list_returned(child))
    return len(found), found


def length_of_lists(node):
    return list_returned(node)[0] + sum(length_of_lists(child) for child in node.children)


def two_sums(node):
    best, seen = -2.0, 1
    for child in node.children:
        value, size = two_sums(child)
        best = max(best, node.value - value)
        seen += size
    return (node.value if best == -2.0 else best), seen


def writes_what_it_makes(x):
    best, seen = -9.0, 1
    for i in range(len(x)):
        if x[i] > 0:
            y = x * 1
            y[i] = 0.0
            value, size = writes_what_it_makes(y)
            best = max(best, -value)
            seen += size
    return (0.0 if best == -9.0 else best + 0.5), seen


def filtered(node):
    return node.value + sum(filtered(c) for c in node.children if c.value > 0)


def best(node):
    found = node.value
    for child in node.children:
        found = max(found, -best(child))
    return found


def over_a_range(n):
    if n == 0:
        return 1
    return sum([over_a_range(i) for i in range(n)])


def two_functions(n):
    if n < 1:
        return 1
    return other_function(n - 1) + two_functions(n - 2) * other_function(n - 3)


def other_function(n):
    if n < 1:
        return 2
    return two_functions(n - 1) - other_function(n - 2)


def nested_calls(m, n):
    if m == 0:
        return n + 1
    if n == 0:
        return nested_calls(m - 1, 1)
    return nested_calls(m - 1, nested_calls(m, n - 1))


def local_recursion(n):
    scale = 2

    def inner(k):
        if k < 2:
            return scale
        return inner(k - 1) + inner(k - 2)

    return inner(n)


def merge_sort(xs):
    if len(xs) <= 1:
        return xs
    middle = len(xs) // 2
    left = merge_sort(xs[:middle])
    right = merge_sort(xs[middle:])
    merged = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            merged.append(left[i])
            i += 1
        else:
            merged.append(right[j])
            j += 1
    return merged + left[i:] + right[j:]


def sorted_text(text):
    return "".join(merge_sort(list(text)))


def branch_after(n):
    if n < 2:
        return n
    a, b = branch_after(n - 1), branch_after(n - 2)
    if n % 3 == 0:
        return a + b
    if n % 3 == 1:
        return a - b
    while n < 9:
        n = n + 1
    return a * b + n


def branch_on_one_side(n):
    """Where a branch has other calls beside it, these meet at the use."""
    if n < 2:
        return n
    if n % 2 == 0:
        a = branch_on_one_side(n - 1)
        step = 1 if n % 3 == 0 else 2
    else:
        a, step = branch_on_one_side(n - 2), 3
    return a + step


def first_leaf(node):
    """What it gives is in its argument, and its caller writes it."""
    found = node[1]
    for child in node[1]:
        found = first_leaf(child)
    return found


def first_leaf_written(n):
    node = (1, [(2, []), (3, [(n, [])])])
    first_leaf(node).append(n)
    return len(node[1][1][1][0][1]), len(node[1][0][1])


NUMBERS = [torch.tensor([6, 3, 0, 8, 1, 7, 5])]
PAIRS = [torch.tensor([1, 2, 2, 0, 1, 2, 1]), torch.tensor([3, 2, 1, 4, 0, 0, 2])]
OVER_NUMBERS = [
    *(in_one_expression, in_a_tuple, in_branches, over_a_range, two_functions),
    *(branch_after, branch_on_one_side),
]
OVER_TREES = [
    *(under_conditions, in_a_sum, in_a_loop, in_place_in_a_loop, appended, filtered, best),
    *(sum_returned, two_sums, length_of_lists),
    first_of_comprehension,
]
OVER_TUPLES = [appended_of_tuples, of_tuples_by_another, summed_lists_of_tuples]
OTHER_FORMS = [list_returned, writes_what_it_makes, merge_sort]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("func", [*OVER_NUMBERS, local_recursion], ids=lambda f: f.__name__)
@pytest.mark.parametrize("scalars", ["python", "tensor"])
def test_numbers(func, scalars):
    if scalars == "tensor" and func is over_a_range:
        pytest.skip("range takes no tensor column")
    sizes = BATCHES if scalars == "python" else BATCHES[2:]
    assert_matches_loop(func, NUMBERS, scalars=scalars, batch_sizes=sizes)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("func", OVER_TREES, ids=lambda f: f.__name__)
def test_trees(func):
    assert_matches_loop(func, [autobatch.objects(TREES)], batch_sizes=BATCHES[1:])


@pytest.mark.parametrize("func", OVER_TUPLES)
def test_trees_of_tuples(func):
    assert_matches_loop(func, [autobatch.objects(TUPLES)], batch_sizes=BATCHES[1:])


def test_what_is_within_an_argument_is_no_copy():
    assert_matches_loop(first_leaf_written, NUMBERS, scalars="python", batch_sizes=BATCHES[1:])


def test_tensors_that_the_program_writes():
    xs = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 2.0], [1.0, 1.0, 1.0], [-1.0, 1.0, 0.0]])
    assert_matches_loop(writes_what_it_makes, [xs], batch_sizes=(1, 4))


def test_nested_calls():
    assert_matches_loop(nested_calls, PAIRS, scalars="python", batch_sizes=BATCHES)


def test_sorting_texts():
    words = ["stack", "", "join", "a", "recursion", "zyx", "abab"]
    assert_matches_loop(sorted_text, [autobatch.objects(words)], batch_sizes=BATCHES[1:])


@pytest.mark.parametrize(
    "func",
    [*OVER_NUMBERS[:3], *OVER_TREES[:-1], *OTHER_FORMS],
    ids=lambda f: f.__name__,
)
def test_these_forms_fork(func):
    assert joins(func) >= 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize("width", [1, 5, 100])
@pytest.mark.parametrize("func", [in_one_expression, in_a_tuple], ids=lambda f: f.__name__)
def test_a_width_limit(func, width):
    assert_matches_loop(func, NUMBERS, max_width=width)
    rows = []
    autobatch.vmap(func, max_width=width, listeners=[lambda s: rows.append(len(s.threads))])(
        *NUMBERS
    )
    assert max(rows) <= max(width, len(NUMBERS[0]))


# Counts.


def in_one_expression_of_itself(n):
    """What ends it gives its argument: no block of its own."""
    return n if n < 2 else in_one_expression_of_itself(n - 1) + in_one_expression_of_itself(n - 2)


def test_the_steps_of_fibonacci():
    """At most four block executions per unit of depth, whatever the batch."""
    for func, least in ((fibonacci, 2), (in_one_expression_of_itself, 1)):
        for ns in ([6, 7, 8, 7], [12], list(range(13))):
            with autobatch.counts() as counts:
                autobatch.vmap(func)(torch.tensor(ns))
            assert counts.block_executions <= 4 * (max(ns) + 1 - least)


def test_a_branch_after_the_calls_does_not_part_them():
    """They run as one before it: the blocks of one call for each depth, and not two ways each."""
    for ns in ([6, 7, 8, 7], [12], list(range(13))):
        with autobatch.counts() as counts:
            autobatch.vmap(branch_after)(torch.tensor(ns))
        assert counts.block_executions <= 16 * max(ns)
    text = str(forked(branch_after).function)
    assert text.index("join, then") < text.index("floordiv" if "floordiv" in text else "mod")
    assert joins(branch_after) == 1
    assert str(forked(branch_on_one_side).function).count("join, then") == 1


def full(depth: int) -> Tree:
    return Tree(depth, full(depth - 1), full(depth - 1)) if depth else Tree(0)


def test_the_steps_of_a_tree_follow_the_deepest():
    model = TreeLSTM(labels=32, hidden=4)

    def steps(*depths: int) -> int:
        with autobatch.counts() as counts:
            autobatch.vmap(model)(autobatch.objects([full(depth) for depth in depths]))
        return counts.block_executions

    one = [steps(depth) for depth in range(5)]
    assert len({later - earlier for earlier, later in pairwise(one)}) == 1
    assert steps(4, 4, 4, 4) == one[4]
    assert steps(1, 4, 2, 4, 3) <= 2 * one[4]


def test_the_steps_of_trees_of_tuples():
    """Calls whose results hold nothing of their arguments: as many steps as trees are deep."""
    for batch in (TUPLES[:3], TUPLES * 3):
        with autobatch.counts() as counts:
            autobatch.vmap(appended_of_tuples, plain="never")(autobatch.objects(batch))
        assert counts.block_executions <= 8 * 5


def test_off_is_one_after_the_other():
    with autobatch.counts() as on:
        autobatch.vmap(in_one_expression)(*NUMBERS)
    with autobatch.counts() as off:
        autobatch.vmap(in_one_expression, fork="off")(*NUMBERS)
    assert on.block_executions < off.block_executions / 4


def test_golden_text():
    texts = [
        forked(func).function for func in (fibonacci, in_place_in_a_loop, appended, branch_after)
    ]
    assert_golden("forks.txt", "\n\n".join(map(str, texts)))


# What may not run together.

LOG: list[Any] = []


def noisy(n):
    if n < 2:
        print("leaf", n)
        return n
    return noisy(n - 1) + noisy(n - 2)


def test_effects_keep_their_order(capsys):
    for n in (4, 3):
        noisy(n)
        expected = capsys.readouterr().out
        assert autobatch.vmap(noisy, scalars="python")(torch.tensor([n])).tolist() == [noisy(n)]
        printed = capsys.readouterr().out
        assert printed == expected * 2
    assert not LIBRARY.purity(LIBRARY.code_of(noisy), Names.of(noisy)).is_pure


class Loud:
    """An effect that shows only when a method is met."""

    def count(self, n):
        print("count", n)
        return n


def hidden_effect(loud, n):
    if n < 2:
        return loud.count(n)
    return hidden_effect(loud, n - 1) + hidden_effect(loud, n - 2)


def test_an_effect_that_shows_late(capsys):
    def program(n):
        return hidden_effect(Loud(), n)

    expected = program(4)
    out = capsys.readouterr().out
    for _ in range(2):
        assert autobatch.vmap(program, scalars="python")(torch.tensor([4])).tolist() == [expected]
        assert capsys.readouterr().out == out


def writes_its_list(xs, n):
    xs.append(n)
    if n < 2:
        return len(xs)
    return writes_its_list(xs, n - 1) * 10 + writes_its_list(xs, n - 2)


def test_writes_to_an_argument():
    def program(n):
        xs = []
        return writes_its_list(xs, n), sum(xs)

    assert_matches_loop(program, NUMBERS, scalars="python")


def writes_its_tensor(x, n):
    x += 1
    if n < 2:
        return x.sum()
    return writes_its_tensor(x, n - 1) - writes_its_tensor(x, n - 2)


def test_writes_to_a_tensor():
    xs = torch.arange(14.0).reshape(7, 2)
    assert_matches_loop(writes_its_tensor, [xs, *NUMBERS], scalars="python")


def itself(x, n):
    return x if n < 2 else itself(x, n - 1)


def aliases(x, n):
    a, b = itself(x, n), itself(x, n - 1)
    a += 1
    return a, b, x, torch.tensor(a is b)


def test_results_that_are_arguments():
    xs = torch.arange(14.0).reshape(7, 2)
    assert_matches_loop(aliases, [xs, *NUMBERS], scalars="python")


def one_of(xs, n):
    if n < 1:
        return xs
    found = one_of(xs, n - 1) if n % 2 else one_of(xs, n - 2)
    return found


def handed_through(n):
    """A result that a caller further up still names."""
    xs = [1]
    found = one_of(xs, n)
    found.append(5)
    return len(xs), torch.tensor(found is xs)


def handed_through_tensor(x, n):
    found = one_of(x, n)
    found += 5
    return x, found


def captured_list(n):
    xs = [1]

    def found(k):
        if k < 1:
            return xs
        a, b = found(k - 1), found(k - 2)
        return a if k % 2 else b

    first, second = found(n), found(n - 1)
    first.append(3)
    return len(xs), len(second), torch.tensor(first is xs)


def captured_view(x, n):
    def found(k):
        if k < 1:
            return x[:1]
        a, b = found(k - 1), found(k - 2)
        return a if k % 2 else b

    first, second = found(n), found(n - 1)
    first += 3
    return x, first, second


@pytest.mark.parametrize("func", [handed_through, captured_list], ids=lambda f: f.__name__)
def test_results_that_others_name(func):
    assert_matches_loop(func, NUMBERS, scalars="python", batch_sizes=BATCHES[1:])


@pytest.mark.parametrize("func", [handed_through_tensor, captured_view], ids=lambda f: f.__name__)
def test_tensors_that_others_name(func):
    xs = torch.arange(14.0).reshape(7, 2)
    assert_matches_loop(func, [xs, *NUMBERS], scalars="python", batch_sizes=BATCHES[1:])


def changes_in_between(x, n):
    xs = [x, x + 1]
    a = total(xs, n)
    xs[0] = xs[0] * 100
    b = total(xs, n)
    return a + b, xs[0]


def held_before(node):
    total = torch.zeros(())
    pair = (total, node)
    for child in node.children:
        total += held_before(child)[0] + child.value
    return total, pair[0] + 1


def held_in_the_loop(node):
    total = torch.zeros(())
    held = []
    for child in node.children:
        held.append(total)
        total += held_in_the_loop(child)[0] + child.value
    return total, sum(held) + torch.zeros(())


def held_in_between(node):
    total = torch.zeros(())
    for child in node.children:
        total += held_in_between(child)[0]
    first = total
    for child in node.children:
        total += held_in_between(child)[1] + child.value
    return first, total * 2


def put(xs, x):
    xs.append(x)


def held_by_a_callee(node):
    total, held = torch.zeros(()), []
    put(held, total)
    for child in node.children:
        total += held_by_a_callee(child) + 1
    return total * 2 + held[0] + node.value


def list_held_before(node):
    found = []
    pair = (found, node)
    for child in node.children:
        found.append(list_held_before(child))
    return node.value + len(pair[0]) + sum(found)


def list_named_in_between(node):
    found = []
    for child in node.children:
        found.append(list_named_in_between(child))
    first = found
    for child in node.children:
        found.append(list_named_in_between(child) * 2.0)
    return node.value + sum(first)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "func",
    [
        *(held_before, held_in_the_loop, held_in_between, held_by_a_callee),
        *(list_held_before, list_named_in_between),
    ],
    ids=lambda f: f.__name__,
)
def test_what_has_another_name(func):
    assert_matches_loop(func, [autobatch.objects(TREES)], batch_sizes=BATCHES[2:])


def total(xs, n):
    return xs[0] + xs[1] if n < 3 else total(xs, n - 1) + total(xs, n - 3)


def test_a_call_sees_its_arguments_as_they_were():
    xs = torch.arange(7.0)
    assert_matches_loop(changes_in_between, [xs, *NUMBERS], scalars="python")


# Exceptions are those of the plain program.


def fails(n):
    if n == 3:
        raise KeyError(int(n))
    if n < 2:
        return 10 // n
    return fails(n - 1) + fails(n - 2)


def fails_between(n):
    if n < 0:
        raise ValueError(f"negative {n}")
    a = fails_between(n - 3) if n > 4 else 1
    b = [1, 2, 3, 4, 5, 6][n]
    c = fails_between(n - 2) if n > 0 else 2
    return a + b + c


def fails_in_a_loop(node):
    total = 0.0
    for child in node.children:
        total += fails_in_a_loop(child) / (child.value + 0.5)
    if node.value == 2.5:
        raise ValueError(len(node.children))
    return total + math.sqrt(node.value + 1.4)


def unpacks(n):
    if n < 2:
        return (n, n) if n else (1, 2, 3)
    (a, _), (b, _) = unpacks(n - 1), unpacks(n - 2)
    return a + b, a


SEEDS = [
    case(func, seed, name=f"{func.__name__}-{seed}", default=seed % 3 == place)
    for place, func in enumerate((fails, fails_between, unpacks))
    for seed in range(6)
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("func", "seed"), SEEDS)
def test_exceptions(func, seed):
    generator = torch.Generator().manual_seed(seed)
    ns = torch.randint(-1 if func is fails_between else 0, 9, (5,), generator=generator)
    assert_matches_loop(func, [ns], scalars="python", batch_sizes=(1, 5))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("start", range(7))
def test_exceptions_in_a_loop(start):
    trees = TREES[start:] + TREES[:start]
    assert_matches_loop(fails_in_a_loop, [autobatch.objects(trees)], batch_sizes=(1, 7))


def test_the_note_tells_the_chain_of_calls():
    with pytest.raises(KeyError) as caught:
        autobatch.vmap(fails, scalars="python")(torch.tensor([5]))
    (note,) = caught.value.__notes__
    assert note.count("called here") == 2
    assert "raise KeyError" in note


def test_endless_recursion():
    def endless(n):
        return endless(n + 1) + endless(n + 2)

    with pytest.raises(autobatch.DepthLimitError):
        autobatch.vmap(endless, max_depth=12)(torch.tensor([1, 2]))


# Surroundings.


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[0.5, 0.1], [-0.2, 0.3]]))

    def forward(self, x: Tensor, n: int) -> Tensor:
        if n < 2:
            return x @ self.weight
        return torch.tanh(self.forward(x, n - 1) @ self.weight - self.forward(x * 0.5, n - 2))


def test_gradients_flow():
    xs = torch.linspace(-1, 1, 14).reshape(7, 2)
    loop, batched = Scaled(), Scaled()
    torch.stack([loop(x, int(n)) for x, n in zip(xs, NUMBERS[0], strict=True)]).sum().backward()
    autobatch.vmap(batched, scalars="python")(xs, *NUMBERS).sum().backward()
    torch.testing.assert_close(batched.weight.grad, loop.weight.grad)
    assert joins(Scaled.forward) >= 0
    assert "join" in str(forked(Scaled.forward, loop).function)


def test_calls_under_a_mode():
    def program(x, n):
        with torch.no_grad():
            y = Scaled().forward(x, n)
        return y, torch.tensor(y.requires_grad)

    xs = torch.linspace(-1, 1, 14).reshape(7, 2)
    assert_matches_loop(program, [xs, *NUMBERS], scalars="python")


def kinds(n):
    if n == 0:
        return 1
    if n == 1:
        return 0.5
    if n == 2:
        return torch.tensor(2.0)
    return kinds(n - 1) * kinds(n - 2)


def test_results_of_different_kinds():
    assert_matches_loop(kinds, [torch.tensor([3, 4, 5, 6])], scalars="python")


def test_fib_of_thirty_under_a_width_limit():
    """Memory stays bounded: no frame is wider than the limit."""
    widest = 0

    def watch(step: Any) -> None:
        nonlocal widest
        widest = max(widest, len(step.threads))

    ns = torch.full((64,), 17)
    result = autobatch.vmap(in_one_expression, max_width=1_000, listeners=[watch])(ns)
    assert result.tolist() == [1597] * 64
    assert widest <= 1_000


class Pair:
    def __init__(self, first, second):
        self.first, self.second = first, second
        self.parts = []

    def swapped(self):
        other = Pair(self.second, self.first)
        other.parts += self.parts
        return other


def push(found, item):
    found.append(item)


def builds(n):
    """Calls that make instances, and helpers that write what is new."""
    if n < 2:
        return Pair(n, 1)
    left, right = builds(n - 1), builds(n - 2)
    found = []
    push(found, left.first)
    push(found, right.second)
    made = Pair(sum(found), left.second)
    made.parts.append(right.first)
    return made.swapped()


def built(n):
    made = builds(n)
    return made.first, made.second, len(made.parts)


def test_instances_are_new():
    assert joins(builds) == 1
    assert_matches_loop(built, NUMBERS, scalars="python")


class Expression:
    def __init__(self, left, right):
        self.left, self.right = left, right

    def value(self, x):
        return self.left.value(x) + self.right.value(x)


class Product(Expression):
    def value(self, x):
        a, b = self.left.value(x), self.right.value(x * 0.5)
        return a * b


class Leaf:
    def __init__(self, scale):
        self.scale = scale

    def value(self, x):
        return x * self.scale if x.sum() > 0 else x - self.scale


def expression(seed: int, depth: int = 4) -> Any:
    if depth == 0 or seed % 4 == 3:
        return Leaf(float(seed % 3))
    kind = Product if seed % 2 else Expression
    return kind(expression(seed * 5 + 1, depth - 1), expression(seed * 3 + 2, depth - 1))


def evaluated(tree, x):
    return tree.value(x)


def test_methods_of_objects():
    trees = autobatch.objects([expression(seed) for seed in range(7)])
    xs = torch.linspace(-2, 2, 14).reshape(7, 2)
    assert joins(Expression.value) == 1
    assert_matches_loop(evaluated, [trees, xs], batch_sizes=BATCHES[1:])


class Damping:
    """It is there before the call: what writes to it has an effect."""

    def __init__(self) -> None:
        self.by = 0.5
        self.seen = 0

    def settled(self, x, rounds):
        while rounds > 0:
            x = x * self.by
            rounds -= 1
        return x

    def counted(self, x):
        self.seen += 1
        return x

    def shrunk(self, x, by=1):
        x -= by
        return x

    def __call__(self, x, rounds=2):
        return self.settled(x, rounds)


DAMPING = Damping()


def damped(x, n):
    if n < 2:
        return DAMPING.settled(x, n) + DAMPING(x, 1)
    return damped(x, n - 1) + damped(x * 0.5, n - 2)


def shrinking(x, n):
    return DAMPING.shrunk(x * 2, by=n) + DAMPING.shrunk(x=n * 2)


def shrinking_itself(x, n):
    return DAMPING.shrunk(x) + n


def counting(x, n):
    return DAMPING.counted(x) + n


def test_a_call_writes_what_its_parameter_stands_for_and_no_more():
    def purity(func):
        return LIBRARY.purity(LIBRARY.code_of(func), Names.of(func))

    assert (purity(damped).is_pure, purity(damped).writes) == (True, {"n"})
    assert (purity(shrinking).is_pure, purity(shrinking).writes) == (True, set())
    assert (purity(shrinking_itself).is_pure, purity(shrinking_itself).writes) == (True, {"x"})
    assert not purity(counting).is_pure
    assert joins(damped) == 2
    xs, ns = torch.linspace(-1, 1, 10).reshape(5, 2), torch.tensor([3, 0, 5, 1, 4])
    for func in (damped, shrinking, shrinking_itself):
        assert_matches_loop(func, (xs, ns), batch_sizes=(1, 5))


def helper(xs):
    return None


def with_helper(xs, n):
    if n < 2:
        helper(xs)
        return n
    a = with_helper(xs, n - 1)
    b = with_helper(xs, n - 2)
    return a + b


def helped(n):
    xs = [1]
    return with_helper(xs, n), sum(xs)


def test_a_helper_that_is_replaced(monkeypatch, capsys):
    """What was pure when it was looked at may not be when it is called."""
    assert_matches_loop(helped, NUMBERS, scalars="python")
    monkeypatch.setitem(globals(), "helper", lambda xs: xs.append(1))
    assert_matches_loop(helped, NUMBERS, scalars="python")
    monkeypatch.setitem(globals(), "helper", lambda xs: print("called"))
    expected = [helped(n) for n in (4, 2)]
    out = capsys.readouterr().out
    batched = autobatch.vmap(helped, scalars="python")
    for n, one in zip((4, 2), expected, strict=True):
        first, second = batched(torch.tensor([n]))
        assert (first.item(), second.item()) == one
    assert capsys.readouterr().out == out
    monkeypatch.setitem(globals(), "helper", lambda xs: None)
    assert_matches_loop(helped, NUMBERS, scalars="python")


def scaled_by(effect):
    def recursive(n):
        if n < 2:
            return effect(n)
        return recursive(n - 1) + recursive(n - 2)

    return recursive


def test_closures_are_judged_each_for_itself(capsys):
    quiet, loud = scaled_by(abs), scaled_by(lambda n: print(n) or n)
    for func in (quiet, loud, quiet, loud):
        expected = func(4)
        out = capsys.readouterr().out
        assert autobatch.vmap(func, scalars="python")(torch.tensor([4])).tolist() == [expected]
        assert capsys.readouterr().out == out
    assert joins(quiet) >= 1


def keeps_to_itself(xs):
    return None


def adds_to_it(xs):
    xs.append(1)


def used_by_asks(xs):
    return None


@autobatch.per_thread
def use(function):
    globals()["used_by_asks"] = function


def asks(xs, n):
    used_by_asks(xs)
    if n < 2:
        return len(xs)
    return asks(xs, n - 1) + asks(xs, n - 2)


def before_and_after(n):
    """A name means something else from one call to the next, as only the host's code can do."""
    xs = [1]
    use(keeps_to_itself)
    first = asks(xs, n)
    use(adds_to_it)
    second = asks(xs, n)
    use(keeps_to_itself)
    return first, second, len(xs)


def test_a_helper_that_the_run_itself_replaces():
    for _ in range(2):
        assert_matches_loop(before_and_after, NUMBERS, scalars="python")


# A function of the program's own that writes what it has captured.


def visited_in_order(n):
    seen = []

    def visit(n):
        seen.append(n)

    def walk(n):
        if n > 0:
            visit(n)
            walk(n - 1)
            walk(n - 2)

    walk(int(n))
    return str(seen)


def visited_from_further_in(n):
    seen = []

    def visit(n):
        seen.append(n)

    def start(n):
        def walk(n):
            if n > 0:
                walk(n - 1)
                walk(n - 2)
                visit(n)

        walk(n)

    start(int(n))
    return str(seen)


def sorted_in_place(x):
    def part(low, high):
        pivot, at = x[high].clone(), low
        for i in range(low, high):
            if x[i] < pivot:
                x[[at, i]] = x[[i, at]]
                at += 1
        x[[at, high]] = x[[high, at]]
        return at

    def sort(low, high):
        if low < high:
            middle = part(low, high)
            sort(low, middle - 1)
            sort(middle + 1, high)

    sort(0, len(x) - 1)
    return x


@pytest.mark.parametrize("func", [visited_in_order, visited_from_further_in])
def test_a_nested_function_that_writes_what_it_captures_is_called_in_order(func) -> None:
    assert_matches_loop(func, [torch.arange(5)])


def test_nested_functions_sort_in_place_what_they_capture() -> None:
    rows = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
    assert_matches_loop(sorted_in_place, [rows])


def walked(visit, n):
    if n > 0:
        visit(n)
        walked(visit, n - 1)
        walked(visit, n - 2)


def walked_with_a_function(n):
    seen = []

    def visit(n):
        seen.append(n)

    walked(visit, int(n))
    return str(seen)


def test_a_run_whose_forked_call_writes_by_a_function_it_gets_begins_again() -> None:
    assert_matches_loop(walked_with_a_function, [torch.arange(5)])


def visited(visit, n):
    if n > 0:
        visit(n)
        return 1 + visited(visit, n - 1)
    return 0


def visited_while_a_list_has_two_names(n):
    seen, rows = [], [[0]]
    row = rows[0]

    def visit(n):
        seen.append(n)

    for i in range(3):
        rows[0][0] += visited(visit, int(n) + i)
    return str((seen, row))


def test_what_calls_write_that_run_before_others_can_look_is_not_lost() -> None:
    assert_matches_loop(visited_while_a_list_has_two_names, [torch.arange(3)])


def sorted_by_key(x, noise):
    order = []
    for value in x:
        order.append(value)
    order.sort(key=lambda t: t.item())
    return torch.stack(order) * noise[0]


def sorted_twice(x):
    noise = torch.rand(1)
    there, back = sorted_by_key(x, noise), sorted_by_key(-x, noise)
    return there, back, noise


@pytest.mark.parametrize("options", [{}, {"chunk_size": 2}, {"on_error": "isolate"}])
def test_what_a_run_did_before_it_began_again_is_not_seen(options: dict[str, Any]) -> None:
    LIBRARY.code_of(sorted_by_key).has_effects = False  # as at its first call
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    found = []
    for _ in range(2):  # the second does not begin again
        torch.manual_seed(3)
        found.append(autobatch.vmap(sorted_twice, randomness="different", **options)(x))
    assert LIBRARY.code_of(sorted_by_key).has_effects
    if "on_error" in options:
        found = [[each.value for each in results] for results in found]
    else:
        found = [list(zip(*result, strict=True)) for result in found]
    for first, second, row in zip(*found, x, strict=True):
        noise = first[2]
        assert torch.equal(noise, second[2])
        assert torch.equal(first[0], row.sort().values * noise)
        assert torch.equal(first[1], (-row).sort().values * noise)


def told_and_sorted(x):
    print("sorting")
    there, back = sorted_by_key(x, x), sorted_by_key(-x, x)
    return there, back


def test_where_a_run_cannot_begin_again_it_is_said_why(capsys: pytest.CaptureFixture[str]) -> None:
    LIBRARY.code_of(sorted_by_key).has_effects = False
    with pytest.raises(autobatch.UnsupportedError, match="so the run cannot begin again"):
        autobatch.vmap(told_and_sorted)(torch.rand(3, 4))
    assert capsys.readouterr().out == "sorting\n" * 3
    autobatch.vmap(told_and_sorted)(torch.rand(3, 4))


def nested_and_pure(n):
    def step(n):
        return n * 2 + 1

    def walk(n):
        if n < 2:
            return step(n)
        return walk(n - 1) + walk(n - 2)

    return walk(n)


def test_a_nested_function_that_calls_another_one_is_as_wide_as_its_recursion() -> None:
    assert_matches_loop(nested_and_pure, [torch.arange(8)])
    executions = []
    for fork in ("auto", "off"):
        with autobatch.counts() as counted:
            autobatch.vmap(nested_and_pure, executor="vmap", fork=fork)(torch.arange(8))
        executions.append(counted.block_executions)
    assert executions == [42, 226]


class Clipper:
    @staticmethod
    def clip(value, low, high):
        return max(low, min(high, value))


def clipped(x, clipper):
    return clipper.clip(x, -1.0, 1.0)


def test_a_static_method_of_objects_gets_no_receiver() -> None:
    clippers = autobatch.objects([Clipper() for _ in range(3)])
    assert_matches_loop(clipped, [torch.tensor([-2.0, 0.5, 3.0]), clippers])


def visits(visit: Any, n: int) -> None:
    if n > 0:
        visit(n)
        visits(visit, n - 1)
        visits(visit, n - 2)


def visited_by_append(x: Tensor) -> list[int]:
    out: list[int] = []
    visits(out.append, 3)
    return out


def appended_by_a_lambda(x: Tensor) -> list[int]:
    out: list[int] = []
    visits(lambda n: out.append(n), 3)
    return out


def added_up(x: Tensor) -> Tensor:
    total = torch.zeros(())
    visits(total.add_, 3)
    return total + x


@pytest.mark.parametrize("func", [visited_by_append, appended_by_a_lambda, added_up])
@pytest.mark.parametrize("fork", ["auto", "off"])
def test_what_a_function_given_to_a_recursion_writes_is_not_lost(func: Any, fork: str) -> None:
    """It is as in the loop, or refused with the way out."""
    x = torch.arange(2.0)
    expected = torch.stack([torch.as_tensor(func(row), dtype=torch.float32) for row in x])
    try:
        found = autobatch.vmap(func, fork=fork)(x)
    except autobatch.UnsupportedError as refusal:
        assert fork == "auto" and 'fork="off"' in str(refusal)
        return
    if isinstance(found, list):
        found = torch.stack(found, 1)
    assert torch.equal(found.to(torch.float32), expected)
