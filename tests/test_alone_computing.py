"""Programs that do more on objects than on tensors begin again plainly, and nobody can tell.

A program is kept together until it has been found to do so; what nobody may see of it is the same.
"""

import math
import random
import time

import numpy as np
import pytest
import torch
import torch.autograd.forward_ad as fwAD
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import autobatch
from benchmarks.leaf_programs import PROGRAMS, examples
from tests.test_alone_parts import stacked

SIZE = 32
DRAW = random.Random(3)
TEXTS = ["".join(DRAW.choice("cah") for _ in range(20)) for _ in range(SIZE)]
WEIGHT = torch.linspace(-1, 1, 4)
X = torch.randn(SIZE, 4, generator=torch.Generator().manual_seed(0))


def busy(x, text):
    """A stack of tensors, in an order that a text says."""
    stack = [x[0]]
    for sign in text:
        if sign == "c":
            stack.append(stack[-1])
        elif sign == "a":
            stack.append(stack.pop() + 1.0)
        else:
            stack.append(stack.pop() * 0.5)
    return stack[-1]


def outcome(function, *args, **options):
    """The result of a second call, or the exception, and how many threads plain Python ran."""
    with autobatch.counts() as counts:
        for _ in range(2):
            try:
                found = autobatch.vmap(function, **options)(*args)
            except Exception as error:
                found = (type(error), str(error))
    return found, counts.plain


def loop(function):
    return [function(x.clone(), text) for x, text in zip(X, TEXTS, strict=True)]


def stack(rows):
    """What a batch gives for these results of single examples."""
    if isinstance(rows[0], tuple):
        return tuple(stack(column) for column in zip(*rows, strict=True))
    return torch.stack([torch.as_tensor(row) for row in rows])


def texts():
    return autobatch.objects(list(TEXTS))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(
    ("engine", "executor"),
    [("stackless", "traced"), ("program_counter", "auto"), ("stackless", "vmap")],
)
def test_a_program_is_the_loop(name, engine, executor):
    function = PROGRAMS[name][0]
    for size in (1, 7) if executor == "vmap" else (1, 7, SIZE):
        rows = examples(name, size)
        expected = [function(*row) for row in rows]
        batched = autobatch.vmap(function, engine=engine, executor=executor)
        with autobatch.counts() as counts:
            for _ in range(2):
                found = batched(*stacked(rows))
        if isinstance(expected[0], torch.Tensor):
            torch.testing.assert_close(found, torch.stack(expected))
        else:
            assert found == expected
    assert counts.plain == (0 if executor == "vmap" else 2 * SIZE)


def test_a_run_ends_where_it_is_found_out_and_the_next_begins_plainly():
    def own(x, text):
        return busy(x, text)

    with autobatch.counts() as first:
        autobatch.vmap(own)(X, texts())
    with autobatch.counts() as second:
        autobatch.vmap(own)(X, texts())
    assert (first.plain, second.plain) == (SIZE, SIZE)
    assert 1 < first.block_executions < 200
    assert second.block_executions == 1


def test_few_operations_on_objects_keep_threads_together():
    short = autobatch.objects([text[:2] for text in TEXTS])
    _, count = outcome(busy, X, short)
    assert count in (0, 2 * SIZE)  # as a run of the same function has found, if there was one

    def little(x, text):
        return busy(x, text)

    assert outcome(little, X, short)[1] == 0


def test_large_tensors_keep_threads_together():
    def own(x, text):
        return busy(x, text).sum()

    large = torch.randn(SIZE, 2, 4096)
    assert outcome(own, large, texts())[1] == 0
    assert outcome(own, large[..., :8], texts())[1] == 2 * SIZE
    assert outcome(own, large, texts())[1] == 0


# What plain Python may do.


def of_kinds(x, text):
    y = busy(x, text)
    return torch.stack([x.sum(), y.double().float(), torch.tensor(2.0)]).max(), x.dtype == y.dtype


def complex_parts(x, text):
    y = torch.complex(busy(x, text), x.sum())
    z = torch.view_as_real(y.conj() * torch.polar(x, x).to(torch.complex64))
    return y.real, y.imag, torch.angle(y), torch.view_as_complex(z), torch.imag(y), x.real


def complex_numbers(x, text):
    z = complex(torch.complex(x[0], x[1]).real.item(), busy(x, text).item())
    return torch.tensor([z, z * z])


def writes_a_real_part(x, text):
    y = torch.complex(x, x) * busy(x, text)
    y.real.add_(1)
    y.imag.mul_(2)
    return y


def seeded(x, text):
    """Numbers are seeds where they may be tensors, for all that is proved of what lists hold."""
    parts = [x[i] for i in range(4)]
    rng = np.random.default_rng((x[0] * 100).abs().int().item())
    rng.shuffle(parts)
    plain = random.Random(parts[0].abs().item())
    return busy(x, text) * rng.normal() + parts[0] + plain.random()


def adds(x, text):
    total = x.new_zeros(())
    for value in x:
        total += value
    return total + busy(x, text)


def writes_its_row(x, text):
    part = x[1:]
    part *= 2.0
    part[0] = busy(x, text)
    x.add_(1.0)
    return x, part.sum()


def reads_weights(x, text):
    return busy(x * WEIGHT, text) + WEIGHT @ x


def by_key(x, text):
    order = sorted(x, key=lambda value: -value)
    return busy(torch.stack(order), text), max(order), sum(map(abs, x))


def views(x, text):
    return busy(x.view(2, 2).T.reshape(-1), text), x.reshape(4, 1).shape[0]


def is_one(x, text):
    y = x
    return busy(x, text), y is x, x[0] is x[0]


def in_a_dict(x, text):
    found = {}
    for sign, value in zip(text, x, strict=False):
        found[sign] = found.get(sign, 0.0) + value
    return busy(x, text), sum(found.values())


class Machine:
    """A stack of tensors, whose methods set its attributes; `kinds` of its instructions."""

    kinds = 3

    def __init__(self, x):
        self.stack, self.top, self.steps = [x[1]], x[0], 0

    def push(self, sign):
        self.stack.append(self.top)
        self.top = torch.tensor(float(ord(sign)) / 99)

    def plus(self, sign):
        self.top = self.top + self.stack[-1]

    def drop(self, sign):
        if len(self.stack) > 1:
            self.top = self.stack.pop() * 0.5

    def step(self, sign):
        steps = [self.push, self.plus, self.drop]
        steps[ord(sign) % self.kinds](sign)
        self.steps += 1


def by_methods(x, text):
    machine = Machine(x)
    for sign in text:
        machine.step(sign)
    return machine.top, machine.steps


class Visitor:
    """Whose methods are found by name."""

    def __init__(self, x):
        self.values = [x]

    def read(self, text):
        for sign in text:
            self.values.append(getattr(self, "sign_" + sign)(self.values.pop()))
        return getattr(self, "of_" + text[:1], self.values[-1])

    def sign_c(self, value):
        return value + self.values[0] if self.values else value * 0.5

    def sign_a(self, value):
        self.values.append(value)
        return value.flip(0)

    @staticmethod
    def sign_h(value):
        return value.exp().sin()


def by_names(x, text):
    return Visitor(x).read(text)


HALVED = {"c": lambda a, b: a + b, "a": torch.maximum, "h": lambda a, b: a * 0.5 - b}


def by_a_table(x, text):
    for sign in text:
        x = HALVED[sign](x, x.flip(0))
    return busy(x, text)


def counts_what_is_left(x, text):
    values = [x]
    for sign in text:
        values.append(HALVED[sign](values[-1], values.pop()))
    if len(values) > 1:
        raise ValueError(f"{len(values)} are left")
    return busy(values[0], text)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "function",
    [
        *(of_kinds, adds, writes_its_row, reads_weights, by_key, views, is_one, in_a_dict),
        *(by_methods, by_a_table, by_names, counts_what_is_left),
        *(complex_parts, complex_numbers, writes_a_real_part, seeded),
    ],
)
def test_it_is_the_loop_and_plain(function):
    before, rows = X.clone(), loop(function)
    for engine, executor in (("stackless", "auto"), ("program_counter", "traced")):
        found, count = outcome(function, X, texts(), engine=engine, executor=executor)
        assert count == 2 * SIZE
        torch.testing.assert_close(found, stack(rows), check_dtype=False)
    assert torch.equal(X, before)


def test_few_threads_that_part_often_are_better_alone_and_more_are_looked_at_anew():
    def own(x, text):
        return by_methods(x, text)

    rows = [own(x.clone(), text) for x, text in zip(X, TEXTS, strict=True)]
    for size, is_new in ((8, True), (8, False), (4, False), (SIZE, True), (SIZE, False)):
        with autobatch.counts() as counts:
            found = autobatch.vmap(own)(X[:size], autobatch.objects(TEXTS[:size]))
        torch.testing.assert_close(found, stack(rows[:size]), check_dtype=False)
        assert counts.plain == size
        assert (counts.block_executions > 1) == is_new


def test_rows_that_are_no_contiguous_memory():
    x = torch.randn(4, SIZE)
    found, count = outcome(views, x.T, texts())
    assert count == 2 * SIZE
    torch.testing.assert_close(
        found[0], torch.stack([views(row.clone(), t)[0] for row, t in zip(x.T, TEXTS, strict=True)])
    )


def test_what_is_read_is_looked_at_again(monkeypatch):
    def own(x, text):
        return busy(x, text) + WEIGHT.sum()

    first, _ = outcome(own, X, texts())
    monkeypatch.setitem(globals(), "WEIGHT", WEIGHT + 1)
    second, _ = outcome(own, X, texts())
    torch.testing.assert_close(second, first + 4)


def test_a_table_of_functions_is_looked_at_again(monkeypatch):
    assert outcome(by_a_table, X, texts())[1] > 0
    monkeypatch.setitem(HALVED, "a", torch.minimum)
    found, count = outcome(by_a_table, X, texts())
    torch.testing.assert_close(found, stack(loop(by_a_table)))
    assert count > 0
    monkeypatch.setitem(HALVED, "a", lambda a, b: time.perf_counter() and a)
    found, count = outcome(by_a_table, X, texts())
    torch.testing.assert_close(found, stack(loop(by_a_table)))
    assert count == 0


def test_the_lowest_thread_that_fails_is_told_of():
    def own(x, text):
        y = busy(x, text)
        return y, 1 // int(y.item() == y.item())

    x = X.clone()
    x[20], x[30] = torch.nan, torch.nan
    with pytest.raises(ZeroDivisionError) as caught:
        autobatch.vmap(own)(x, texts())
    assert "Example index: 20" in caught.value.__notes__[0]
    found, count = outcome(own, x, texts(), on_error="isolate")
    assert [at for at, each in enumerate(found) if each.exception is not None] == [20, 30]
    assert count == 2 * (SIZE - 2)
    for at in (0, 31):
        torch.testing.assert_close(found[at].value[0], own(x[at], TEXTS[at])[0])


def test_what_fails_in_a_run_that_has_begun_again_has_no_context():
    def own(x, text):
        y = busy(x, text)
        if x[0] == 7.0:
            raise ValueError("seven")
        return y

    x = X.clone()
    x[20, 0] = 7.0
    with autobatch.counts() as counts, pytest.raises(ValueError, match="seven") as caught:
        autobatch.vmap(own)(x, texts())
    assert counts.plain == SIZE - 1
    assert caught.value.__context__ is None


@pytest.mark.parametrize("requires_grad", [False, True])
def test_what_all_threads_share_is_the_callers(requires_grad):
    weight = torch.arange(6.0).reshape(2, 3).t().requires_grad_(requires_grad)

    def own(x, one, other, text):
        text = "".join(text)
        return busy(x, text) + one[0, 0], one is other, one.T.view(-1)

    def own_lists(x, one, other, items):
        items.append("c")
        return own(x, one, other, items)

    def torn(x, one, other, text):
        return busy(x, text) + one.view(-1)

    def given(function, last):
        with torch.no_grad():
            return outcome(function, X, weight, weight, last, in_dims=(0, None, None, 0))

    for function in (own, own_lists):
        found, count = given(function, autobatch.objects([list(text) for text in TEXTS]))
        assert count == 2 * SIZE
        assert found[1].all()
        assert torch.equal(found[2], torch.arange(6.0).expand(SIZE, 6))
    assert given(torn, texts())[0][0] is RuntimeError


def test_what_is_handed_back_is_nobody_elses():
    def own(x, weight, items):
        items.append("c")
        return busy(x, items), weight

    items = [list(text) for text in TEXTS]
    weight = WEIGHT.clone()
    found, count = outcome(
        own, X, weight, autobatch.objects(items), in_dims=(0, None, 0), on_error="isolate"
    )
    assert count == 2 * SIZE
    found[0].value[1].zero_()
    assert torch.equal(weight, WEIGHT) and torch.equal(found[1].value[1], WEIGHT)


# What it may not.


def writes_a_real_part_of_weights(x, text):
    WEIGHT.real.add_(1.0)
    return busy(x, text)


def writes_weights(x, text):
    WEIGHT.add_(1.0)
    return busy(x, text)


def writes_a_row_of_weights(x, text):
    WEIGHT[1] = 3.0
    return busy(x, text)


def writes_by_a_view(x, text):
    WEIGHT.view(2, 2).T.mul_(2.0)
    return busy(x, text)


def writes_by_a_function(x, text):
    torch.reshape(WEIGHT, (2, 2)).zero_()
    return busy(x, text)


def writes_by_a_list(x, text):
    held = [WEIGHT, x]
    held[0].mul_(2.0)
    return busy(x, text)


def writes_by_going_through(x, text):
    for value in WEIGHT:
        value += 1
    return busy(x, text)


def writes_the_same(x, text):
    WEIGHT.float().contiguous().zero_()
    return busy(x, text)


def writes_what_is_the_best(x, text):
    max([WEIGHT], key=len).zero_()
    return busy(x, text)


def writes_where_a_product_starts(x, text):
    math.prod([], start=WEIGHT).add_(x)
    return busy(x, text)


def writes_out(x, text):
    torch.add(x, 1.0, out=WEIGHT)
    return busy(x, text)


def writes_in_place(x, text):
    F.relu(WEIGHT, inplace=True)
    return busy(x, text)


def writes_by_einsum(x, text):
    torch.einsum("i->i", WEIGHT).zero_()
    return busy(x, text)


def writes_by_a_product_of_one(x, text):
    torch.cartesian_prod(WEIGHT).zero_()
    return busy(x, text)


class Holder:
    def put(self, value):
        self.held = value


def writes_an_attribute_of_what_it_is_given(x, text):
    [Holder.put][0](WEIGHT, 3)
    return busy(x, text)


def writes_an_attribute_by_a_class(x, text):
    kind = type(Holder())
    [kind.put][0](WEIGHT, 3)
    return busy(x, text)


class Any:
    def __init__(self, held):
        self.held = held

    @staticmethod
    def get_set(held):
        held.zero_()


def asks_for_any_attribute(x, text):
    for name in ("he", "ld"):
        text = text + getattr(Any(""), "held" if name else name)
    return busy(x, text)


def writes_by_a_method_of_a_name(x, text):
    getattr(Any(x), "get_" + "set")(WEIGHT)
    return busy(x, text)


def writes_a_list_by_a_name(x, text):
    held = []
    getattr(held, "app" + "end")(WEIGHT)
    held[0].zero_()
    return busy(x, text)


def writes_a_tensor_by_a_name(x, text):
    getattr(WEIGHT, "zero" + "_")()
    return busy(x, text)


def draws(x, text):
    return busy(x, text) + torch.rand(())


def draws_in_place(x, text):
    return busy(x.normal_(), text)


def drops(x, text):
    return busy(F.dropout(x), text)


def prints(x, text):
    print(text)
    return busy(x, text)


def asks_for_a_gradient(x, text):
    y = x.clone().requires_grad_()
    return busy(y, text) * y.requires_grad


def writes_data(x, text):
    y = x.clone()
    y.data = WEIGHT
    return busy(y, text)


def is_told_apart_by_hash(x, text):
    return busy(x, text) * (hash(x) == hash(x))


def sets_a_mode(x, text):
    with torch.inference_mode():
        return busy(x, text)


REFUSED = [
    writes_a_real_part_of_weights,
    writes_weights, writes_a_row_of_weights, writes_by_a_view, writes_by_a_function,
    writes_by_a_list, writes_by_going_through, writes_the_same, writes_what_is_the_best, writes_out,
    writes_where_a_product_starts, writes_in_place, writes_by_einsum, writes_by_a_product_of_one,
    draws, draws_in_place, drops,
    writes_an_attribute_of_what_it_is_given, writes_an_attribute_by_a_class,
    asks_for_any_attribute, writes_by_a_method_of_a_name, writes_a_list_by_a_name,
    writes_a_tensor_by_a_name,
    prints, asks_for_a_gradient, writes_data, is_told_apart_by_hash, sets_a_mode,
]  # fmt: skip


@pytest.mark.sampled(16)
@pytest.mark.parametrize("function", REFUSED)
def test_what_others_may_see_is_not_for_plain_python(function):
    x, weight, seen = X.clone(), WEIGHT.clone(), []
    for plain in ("never", "auto"):
        found, count = outcome(function, X, texts(), randomness="different", seed=1, plain=plain)
        assert count == 0
        seen.append((type(found), WEIGHT.clone()))
        WEIGHT.copy_(weight)
    assert seen[0][0] is seen[1][0]
    assert torch.equal(seen[0][1], seen[1][1])
    assert torch.equal(X, x)


def test_what_all_threads_share_is_not_written():
    def own(shared, x, text):
        shared[0] += x[0]
        return busy(shared, text)

    shared = WEIGHT.clone()
    found, count = outcome(own, shared, X, texts(), in_dims=(None, 0, 0))
    assert count == 0
    assert torch.equal(shared, WEIGHT)
    expected = [own(shared.clone(), x, text) for x, text in zip(X, TEXTS, strict=True)]
    torch.testing.assert_close(found, torch.stack(expected))


def test_gradients_are_those_of_the_loop():
    x = X.clone().requires_grad_()
    found, count = outcome(busy, x, texts())
    assert count == 2 * SIZE
    (ours,) = torch.autograd.grad(found.sum(), x)
    rows = [busy(row, text) for row, text in zip(x, TEXTS, strict=True)]
    (wanted,) = torch.autograd.grad(sum(rows), x)
    torch.testing.assert_close(ours, wanted)
    with torch.no_grad():
        found, count = outcome(busy, x, texts())
    assert count == 2 * SIZE and not found.requires_grad


def test_gradients_of_what_a_program_reads():
    weight = torch.ones(4, requires_grad=True)

    def own(x, text):
        return busy(x * weight, text)

    for needed in (True, False, True):
        weight.requires_grad_(needed)
        found, count = outcome(own, X, texts())
        assert count == 2 * SIZE and found.requires_grad is needed
    (ours,) = torch.autograd.grad(found.sum(), weight)
    (wanted,) = torch.autograd.grad(sum(loop(own)), weight)
    torch.testing.assert_close(ours, wanted)


def test_tangents_are_those_of_the_loop():
    outcome(busy, X, texts())
    with fwAD.dual_level():
        dual = fwAD.make_dual(X.clone(), torch.ones_like(X))
        found, count = outcome(busy, dual, texts())
        tangent = fwAD.unpack_dual(found).tangent
        rows = [busy(row, text) for row, text in zip(dual, TEXTS, strict=True)]
        wanted = torch.stack([fwAD.unpack_dual(row).tangent for row in rows])
    assert count == 0
    torch.testing.assert_close(tangent, wanted)


def test_tangents_of_what_is_handed_back():
    def picked(x, key):
        found = {}
        for at, value in enumerate(x):
            found[at] = value
        return found[int(key)]

    keys = torch.zeros(SIZE, dtype=torch.int64)
    assert outcome(picked, X, keys)[1] == 2 * SIZE
    with fwAD.dual_level():
        dual = fwAD.make_dual(X.clone(), torch.ones_like(X))
        found, count = outcome(picked, dual, keys)
        assert fwAD.unpack_dual(found).tangent.tolist() == [1.0] * SIZE
    assert count == 0


def test_within_transforms_of_torchs():
    def whole(x):
        return autobatch.vmap(busy)(x, texts()).sum()

    outcome(busy, X, texts())
    with autobatch.counts() as counts:
        found = torch.func.grad(whole)(X)
    assert counts.plain == 0
    assert found[:, 0].count_nonzero() == SIZE


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


def test_who_looks_on_sees_threads_together():
    outcome(busy, X, texts())
    steps = []
    for options in (
        {"max_steps": 100_000}, {"listeners": (steps.append,)}, {"plain": "never"},
        {"executor": "vmap"},
    ):  # fmt: skip
        assert outcome(busy, X, texts(), **options)[1] == 0
    assert steps
    assert outcome(busy, X, texts(), fallback="warn")[1] == outcome(busy, X, texts())[1] > 0
    with Seen():
        assert outcome(busy, X, texts())[1] == 0


def test_results_that_are_unlike_are_told_of():
    def own(x, text):
        y = busy(x, text)
        return (y, y) if text[0] == "a" else y

    (kind, message), _ = outcome(own, X, texts())
    assert issubclass(kind, autobatch.StackingError)
    assert "different structures" in message


def test_lists_of_the_callers_stay_as_they_were():
    def own(x, items):
        text = "".join(items)
        items.append("c")
        items.sort()
        return busy(x, text), len(items)

    items = [list(text) for text in TEXTS]
    found, count = outcome(own, X, autobatch.objects(items))
    assert count == 2 * SIZE
    assert found[1].tolist() == [21] * SIZE
    assert items == [list(text) for text in TEXTS]
