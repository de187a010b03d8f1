"""Tensors of different lengths, one for each thread, against the plain loop over them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch
from autobatch import OptionError, StackingError, ragged
from tests.expected import check
from tests.oracle import CONFIGURATIONS

LENGTHS = (3, 0, 1, 5, 2, 3, 7)
CONFIGURED = pytest.mark.parametrize("options", CONFIGURATIONS, ids=str)


def floats(*sizes: int, seed: int = 0, width: int | None = 3) -> list[Tensor]:
    """Tensors ``[n, width]``, or ``[n]``, for the given lengths."""
    generator = torch.Generator().manual_seed(seed)
    event = () if width is None else (width,)
    return [torch.randn(n, *event, generator=generator) for n in sizes]


def lengths(count: int, seed: int = 0, longest: int = 6) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, longest + 1, (count,), generator=generator).tolist()


def taken(value: Any, index: int) -> Any:
    """One thread's part of a result whose tensors came back as lists."""
    if isinstance(value, tuple):
        return tuple(taken(part, index) for part in value)
    if isinstance(value, dict):
        return {key: taken(part, index) for key, part in value.items()}
    return value[index]


def same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, bool | int | float) and isinstance(found, Tensor):
        found = found.item()
    if isinstance(wanted, tuple) and not isinstance(wanted, torch.Size):
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
        return
    check(found, wanted, 1e-4, 1e-5)


def match(function: Any, *args: Any, options: Any, in_dims: Any = 0) -> None:
    """The batch gives what the loop gives; lists of tensors are ragged, and stay as they were."""
    dims = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(args)
    before = [[part.clone() for part in arg] if isinstance(arg, list) else arg for arg in args]
    wanted: list[Any] = []
    failure: Exception | None = None
    size = next(len(arg) for arg, dim in zip(args, dims, strict=True) if dim is not None)
    for index in range(size):
        own = [
            arg if dim is None else arg[index].clone() for arg, dim in zip(args, dims, strict=True)
        ]
        try:
            wanted.append(function(*own))
        except Exception as error:
            failure = error
            break
    batched = autobatch.vmap(function, in_dims=in_dims, ragged_out="list", **options)
    given = [ragged(arg) if isinstance(arg, list) else arg for arg in args]
    for _ in range(3):
        if failure is not None:
            with pytest.raises(type(failure)) as caught:
                batched(*given)
            assert str(caught.value) == str(failure)
        else:
            found = batched(*given)
            for index, one in enumerate(wanted):
                same(taken(found, index), one)
        check(list(args), before, 0.0, 0.0)


# Reading


def total(x):
    s = torch.zeros(3)
    for row in x:
        s = torch.tanh(s * 0.5 + row)
    return s, len(x)


def sizes(x):
    return x.shape[0], x.size(0), x.size(-1), len(x.shape), x.dim(), x.ndim, x.shape


def kinds(x):
    is_one = isinstance(x, Tensor) and type(x) is Tensor
    return is_one, x.dtype == torch.float32, str(x.device), x.requires_grad, x.is_floating_point()


def backwards(x):
    s = torch.zeros(3)
    for row in reversed(x):
        s = s * 0.5 + row
    for i in range(len(x) - 1, -1, -1):
        s = s * 0.9 - x[i]
    return s


def counted(x):
    s = torch.zeros(3)
    for i, row in enumerate(x, 1):
        if row[0] > 0:
            s = s + i * row
    return s


def every_other(x):
    s = torch.zeros(())
    for value in x[::2]:
        s = s + value.sum()
    for value in x[1:][::2]:
        s = s - value.max()
    for row in reversed(x[1::3]):
        s = s * 0.5 + row[0]
    return s


def halves(x):
    """A recursion over slices."""
    if len(x) == 0:
        return torch.zeros(3)
    if len(x) == 1:
        return x[0]
    middle = len(x) // 2
    return torch.maximum(halves(x[:middle]), halves(x[middle:])) + x[-1]


def middle_of(x):
    return x[1:-1], x[-2:], x[:100], x[5:2], x[:-9]


def listed(x):
    rows = [row * 2 for row in x]
    return torch.stack(rows) if rows else x.new_zeros(0, 3)


def kept_in_things(x):
    holder = {"x": x, "list": [x, x[1:]]}
    s = torch.zeros(3)
    for part in holder["list"]:
        if len(part) > 1:
            s = s + part[1]

    def last():
        return x[-1] if len(x) else s

    return s + last(), len(holder["x"])


@dataclasses.dataclass
class Reader:
    tokens: Any
    at: int = 0

    def next(self):
        self.at += 1
        return self.tokens[self.at - 1]


def through_an_object(x):
    reader = Reader(x)
    s = torch.zeros(3)
    while reader.at < len(reader.tokens):
        row = reader.next()
        if row.sum() < -2:
            break
        s = s + row
    return s, reader.at


READING = (
    *(total, sizes, kinds, backwards, counted, every_other, halves, middle_of, listed),
    *(kept_in_things, through_an_object),
)


@pytest.mark.sampled(12)
@CONFIGURED
@pytest.mark.parametrize("function", READING)
def test_reading(function, options):
    match(function, floats(*LENGTHS), options=options)


@pytest.mark.sampled(6)
@CONFIGURED
@pytest.mark.parametrize("size", [1, 2, 64])
def test_batch_sizes(size, options):
    match(total, floats(*lengths(size)), options=options)
    match(halves, floats(*lengths(size, seed=1)), options=options)


@CONFIGURED
def test_no_threads(options):
    function = autobatch.vmap(lambda x: (len(x), x[1:]), ragged_out=(None, "pad"), **options)
    count, (padded, sizes_of) = function(ragged(torch.empty(0, 4, 3), torch.empty(0)))
    assert len(count) == 0 and padded.shape == (0, 0, 3) and sizes_of.shape == (0,)


def at(x, i):
    return x[i]


def at_two(x, i):
    return x[i, 1] + x[i][2] + x[i, -1]


def gathered(x, i):
    both = torch.stack([i, torch.zeros_like(i)])
    return x[both], x[torch.tensor([0, -1])]


def until(x, limit):
    n = x[:limit]
    i = 0
    while i < len(n) and n[i, 0] < 1.0:
        i += 1
    return i, x[i:limit]


@pytest.mark.sampled(4)
@CONFIGURED
@pytest.mark.parametrize("function", [at, at_two, gathered, until])
def test_an_index_of_each_thread(function, options):
    xs = floats(3, 4, 1, 5, 2)
    match(function, xs, torch.tensor([2, 0, -1, 4, 1]), options=options)
    match(function, xs, torch.tensor([2, 0, 0, -4, 1], dtype=torch.int32), options=options)


@pytest.mark.sampled(3)
@CONFIGURED
@pytest.mark.parametrize("function", [at, at_two, gathered])
def test_an_index_out_of_range(function, options):
    xs = floats(3, 4, 1, 5, 2)
    for index in ([2, 3, 1, 5, 0], [0, 0, 0, -6, 0], [3, 0, 0, 0, 0]):
        match(function, xs, torch.tensor(index), options=options)


@CONFIGURED
def test_an_index_out_of_range_for_all(options):
    match(lambda x: x[2], floats(3, 2, 5), options=options)
    match(lambda x: x[-1], floats(3, 0), options=options)
    match(lambda x: x[0], floats(0, 0), options=options)


def paired(x, y):
    s = torch.zeros(3)
    for a, b in zip(x, y, strict=False):
        s = s * a + b
    return s


def one_of_two(x, y):
    z = x if len(x) > len(y) else y
    s = torch.zeros(3)
    for row in z:
        s = s * 0.5 + row
    return s, len(z), z


def edit_distance(a, b):
    """Levenshtein's distance of two sequences of tokens."""
    row = list(range(len(b) + 1))
    for i in range(len(a)):
        left, diagonal = i + 1, row[0]
        row[0] = left
        for j in range(len(b)):
            cost = 0 if a[i] == b[j] else 1
            left, diagonal = min(row[j + 1] + 1, left + 1, diagonal + cost), row[j + 1]
            row[j + 1] = left
    return row[-1]


@CONFIGURED
@pytest.mark.parametrize("function", [paired, one_of_two])
def test_two_arguments(function, options):
    match(function, floats(*LENGTHS), floats(*lengths(7, seed=3), seed=4), options=options)


@pytest.mark.parametrize("options", [CONFIGURATIONS[1], CONFIGURATIONS[2]], ids=str)
def test_edit_distance(options):
    words = [torch.randint(0, 3, (n,)) for n in (3, 0, 4, 2, 3)]
    others = [torch.randint(0, 3, (n,)) for n in (2, 3, 4, 0, 1)]
    match(edit_distance, words, others, options=options)


# The whole: by one tensor for each thread


def reduced(x):
    return x.sum(), x.sum(0), (x * 2 + 1).sum(), x.numel(), x.T.sum(1), (-x).amax(initial_of(x))


def initial_of(x):
    return 1


def whole(x):
    return torch.cat([x, x * 2]), x + 1, x.new_zeros(2), torch.zeros_like(x), x.view(-1), x[:, 0]


def masked(x):
    return x[x > 0], x[..., 1], x[1:, 0:1]


def listed_rows(x):
    parts = list(x)
    return sum(part.sum() for part in parts) + sum(x).sum() if parts else torch.zeros(())


@pytest.mark.sampled(4)
@CONFIGURED
@pytest.mark.parametrize("function", [reduced, whole, masked, listed_rows])
def test_the_whole(function, options):
    match(function, floats(*LENGTHS), options=options)


EMBEDDING = torch.nn.Embedding(5, 4)
LINEAR = torch.nn.Linear(3, 2)
LAYERS = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3))
NORM = torch.nn.LayerNorm(3)
WEIGHT = torch.arange(6.0).reshape(3, 2)


def by_rows(x):
    y = torch.tanh(x * 2 + WEIGHT[:, 0]) - 1 / (x.square() + 1)
    return (
        y,
        LAYERS(NORM(x)),
        LINEAR(x) @ WEIGHT.T,
        -x,
        x > 0,
        x.double(),
        x + x,
        2**x,
        x[1:] * x[1:],
    )


def under_a_branch(x):
    """The rows of those that are here, whatever their table holds besides."""
    s = torch.zeros(3)
    if len(x) > 2:
        y = (x * 2)[::2]
        for row in LAYERS(y):
            s = s * 0.5 + row
        y = y.relu() + 1
    else:
        y = 1 - x
    y += 1  # its own, not the argument's
    for row in reversed(y):
        s = s + row * x.abs()[0]
    return s, y, x


def read_words(words):
    h = torch.zeros(4)
    for row in EMBEDDING(words):
        h = torch.tanh(h + row)
    return h


def added_up(x):
    y = x[1:]
    parts = x.sum(), x.sum(0), y.sum(dim=0), x.sum(-2), x.sum(1), x.sum(0, keepdim=True)
    return *parts, x.mean(), y.mean(0), (x > 0).sum(0), x.half().mean(0), x.long().sum()


def not_by_rows(x, y):
    return x * y, x + torch.ones(1, 3), x.float() + 0


@pytest.mark.sampled(3)
@CONFIGURED
def test_what_goes_row_by_row(options):
    match(by_rows, floats(*LENGTHS), options=options)
    match(under_a_branch, floats(*LENGTHS), options=options)
    match(added_up, floats(*LENGTHS), options=options)
    match(lambda x: (x.sum(0), x.sum(), x.mean()), floats(*LENGTHS, width=None), options=options)
    match(lambda x: (x.sum(0), x.sum(), x.mean()), floats(*LENGTHS, width=0), options=options)
    match(lambda x: x.mean(0), [torch.ones(2, dtype=torch.int64)], options=options)
    words = [torch.randint(0, 5, (n,)) for n in LENGTHS]
    match(read_words, words, options=options)
    match(lambda x: x @ WEIGHT[0], [torch.zeros(n, 3) for n in (1, 0, 3)], options=options)
    match(lambda x: LINEAR(x), floats(*LENGTHS, width=2), options=options)  # fails as the loop does
    match(lambda x: x + torch.ones(3), floats(3, 1, 3, width=None), options=options)
    match(not_by_rows, floats(*LENGTHS), floats(*LENGTHS, seed=2), options=options)
    match(not_by_rows, floats(3, 1, 4), floats(1, 5, 4), options=options)


def test_rows_of_all_threads_run_at_once():
    words = ragged([torch.randint(0, 5, (n,)) for n in LENGTHS])
    function = autobatch.vmap(read_words, executor="vmap", fallback="error")
    function(words)
    with autobatch.counts() as c:
        function(words)
    assert c.launches_by_block[("read_words", 0)] == 2  # the table, torch.zeros
    assert c.block_executions == max(LENGTHS) + 2
    assert c.host_reads == max(LENGTHS) + 1  # the branches
    assert not c.other_reads  # the lengths are known from the call

    def shifted(x):
        return (x + 1) * 2

    padded = torch.full((7, 9, 3), torch.nan)
    for place, x in enumerate(floats(*LENGTHS)):
        padded[place, : len(x)] = x
    padded.requires_grad_()
    rows, _ = autobatch.vmap(shifted, ragged_out="pad")(ragged(padded, LENGTHS))
    rows.sum().backward()
    inside = torch.arange(9) < torch.tensor(LENGTHS)[:, None]
    assert (padded.grad == 2 * inside[:, :, None]).all()


@CONFIGURED
def test_truth_and_unpacking(options):
    match(lambda x: 1 if x else 2, floats(1, 1, 1, width=1), options=options)
    match(lambda x: 1 if x else 2, floats(1, 1, 3, width=1), options=options)

    def parts(x):
        a, b = x
        a += 1
        return a - b, x

    match(parts, floats(2, 2, 2), options=options)
    match(parts, floats(2, 3, 2), options=options)


# Writes, and who sees them


def written(x):
    y = x
    if len(x) > 2:
        x[1] = 7.0
    return x, y[:2], y


def written_row(x):
    for row in x:
        row += 1
        row[0] = 5.0
    return x


def written_slice(x, n):
    y = x[1:n]
    z = y[1:]
    if len(y) > 1:
        y[0] = 9.0
        z *= 2
    x += 1
    return x, y, z


def written_view(x):
    t = x.T
    first = x[:, 0]
    if len(x) > 1:
        first += 10
        t[1] = 3.0
    return x, t.T, first


def index_moves_on(x, i):
    """A row is that of the index as it was."""
    row = x[i]
    part = x[i:]
    i += 1
    if row.sum() > 0:
        return row, part
    return -row, part


@CONFIGURED
@pytest.mark.parametrize("function", [written, written_row, written_view])
def test_writes(function, options):
    match(function, floats(*LENGTHS), options=options)


@CONFIGURED
def test_writes_to_slices(options):
    match(written_slice, floats(*LENGTHS), torch.tensor([3, 2, 1, 4, 0, -1, 6]), options=options)


@CONFIGURED
def test_an_index_is_read_at_once(options):
    match(index_moves_on, floats(3, 4, 2, 5), torch.tensor([0, 1, 1, 2]), options=options)


# What is given, and what comes back


def test_what_may_be_given():
    xs = floats(*LENGTHS)
    wanted = autobatch.vmap(total)(ragged(xs))
    padded = torch.full((len(xs), 9, 3), torch.nan)
    for place, x in enumerate(xs):
        padded[place, : len(x)] = x
    nested = torch.nested.nested_tensor(xs, layout=torch.jagged)
    for given in (
        ragged(padded, LENGTHS),
        ragged(padded.transpose(1, 2).contiguous().transpose(1, 2), torch.tensor(LENGTHS)),
        ragged(nested),
        nested,
        ragged([x.numpy() for x in xs]),
        torch.nested.nested_tensor(xs),
    ):
        check(autobatch.vmap(total)(given), wanted)
        check(autobatch.function(total).batch(given), wanted)
        check(autobatch.vmap(total, chunk_size=3)(given), wanted)
    check(autobatch.vmap(lambda pair: total(pair["x"]))({"x": ragged(xs)}), wanted)
    check(autobatch.function(lambda n, x: total(x)).batch(torch.ones(7), x=ragged(xs)), wanted)
    check(autobatch.vmap(lambda n, x: total(x))(torch.ones(7), x=ragged(xs)), wanted)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ragged(torch.zeros(3, 2)), "without lengths"),
        (lambda: ragged([1, 2]), "holds a int"),
        (lambda: ragged([torch.zeros(())]), "0-d"),
        (lambda: ragged([torch.zeros(1), torch.zeros(1, 1)]), "only the first dimension"),
        (lambda: ragged([torch.zeros(1), torch.zeros(1).int()]), "dtype"),
        (lambda: ragged(torch.zeros(2, 3), [1, 4]), "the length 4"),
        (lambda: ragged(torch.zeros(2, 3), [1, -1]), "the length -1"),
        (lambda: ragged(torch.zeros(2, 3), [1]), "lengths of shape (1,)"),
        (lambda: ragged(torch.zeros(2, 3), [1.0, 2.0]), "torch.float32"),
        (lambda: ragged(torch.zeros(2), [1, 1]), "padded tensor"),
        (lambda: autobatch.vmap(total, in_dims=1)(ragged(floats(1, 2))), "dimension 1"),
        (lambda: autobatch.vmap(paired)(ragged(floats(1, 2)), ragged(floats(1))), "batch sizes"),
        (lambda: autobatch.vmap(total, ragged_out="list", out_dims=1), "out_dims"),
        (lambda: autobatch.vmap(total, ragged_out="list", on_error="isolate"), "on_error"),
    ],
)
def test_what_may_not_be(make, said):
    with pytest.raises(OptionError, match=said.replace("(", r"\(").replace(")", r"\)")):
        make()


def scan(x):
    s = torch.zeros(3, dtype=x.dtype)
    out = []
    for row in x:
        s = torch.tanh(s * 0.5 + row)
        out.append(s)
    return {"all": torch.stack(out) if out else x.new_zeros(0, 3), "last": s, "n": len(x)}


@CONFIGURED
def test_forms_of_results(options):
    xs = floats(*LENGTHS)
    wanted = [scan(x)["all"] for x in xs]
    for place in (slice(None), slice(0, 1), slice(5, 6)):
        part, given = wanted[place], ragged(xs[place])
        for form in ("nested", "list", "pad"):
            spec = {"all": form, "last": None, "n": None}
            found = autobatch.vmap(scan, ragged_out=spec, **options)(given)
            assert found["last"].shape == (len(part), 3) and found["n"].shape == (len(part),)
            if form == "pad":
                padded, sizes_of = found["all"]
                assert sizes_of.tolist() == [len(w) for w in part]
                assert padded.shape == (len(part), max(sizes_of), 3)
                for row, w in zip(padded, part, strict=True):
                    torch.testing.assert_close(row[: len(w)], w)
                    assert not row[len(w) :].any()
                continue
            if form == "nested":
                assert found["all"].is_nested and found["all"].layout is torch.jagged
            rows = found["all"].unbind() if form == "nested" else found["all"]
            for row, w in zip(rows, part, strict=True):
                torch.testing.assert_close(row, w)


def test_results_must_stack_unless_told():
    with pytest.raises(StackingError, match='ragged_out="nested", "list" or "pad"'):
        autobatch.vmap(scan)(ragged(floats(2, 3)))
    with pytest.raises(StackingError, match='ragged_out="list", pad the results to one shape'):
        autobatch.vmap(lambda x: x.T)(ragged(floats(2, 3)))
    for form in ("nested", "pad"):
        with pytest.raises(StackingError, match=f'"{form}" is of lengths alone.*pass "list"'):
            autobatch.vmap(lambda x: x.T, ragged_out=form)(ragged(floats(2, 3)))


NEW_FIRST = [lambda y: y[None], lambda y: y.unsqueeze(0), lambda y: torch.stack([y, y])]


@pytest.mark.parametrize("function", NEW_FIRST)
def test_a_new_dimension_before_the_lengths_is_told(function):
    """Where the results are to stack, and where nothing is to run thread by thread."""
    given = ragged(floats(2, 3, 1))
    told = r"where dimension 1, in which they differ, is the first \(y\[:, None\] for y\[None\]"
    for form in (None, "pad"):
        with pytest.raises(StackingError, match=told):
            autobatch.vmap(function, ragged_out=form)(given)
    told = (
        r"ragged tensors, of shapes \(2, 3\), \(3, 3\) and so on; it stays batched .* y\[:, None\]"
    )
    with pytest.raises(autobatch.FallbackError, match=told):
        autobatch.vmap(lambda y: function(y).sum(), fallback="error")(given)
    for other in (lambda y: y[:, None], lambda y: torch.stack([y, y], 1)):
        padded, lengths = autobatch.vmap(other, ragged_out="pad", fallback="error")(given)
        assert lengths.tolist() == [2, 3, 1] and padded.shape[:2] == (3, 3)


def unlike(x):
    return x @ x.T, x.T, x.sum() if len(x) > 2 else x


@CONFIGURED
def test_a_list_takes_tensors_of_any_shapes(options):
    xs = floats(2, 3, 1, 2)
    found = autobatch.vmap(unlike, ragged_out="list", **options)(ragged(xs))
    for place, x in enumerate(xs):
        same(taken(found, place), unlike(x))


@pytest.mark.parametrize("spec", [("pad",), {"all": "pad"}, {"a": 1, "b": 2, "n": 3}])
def test_ragged_out_that_does_not_fit(spec):
    with pytest.raises(OptionError, match="ragged_out"):
        autobatch.vmap(scan, ragged_out=spec)(ragged(floats(2, 3)))


# Gradients


@pytest.mark.parametrize("options", CONFIGURATIONS[1:4], ids=str)
@pytest.mark.parametrize("form", ["nested", "list", "pad"])
def test_gradients(form, options):
    xs = [x.double().requires_grad_() for x in floats(*LENGTHS)]
    wanted = torch.autograd.grad(
        sum(scan(x)["all"].square().sum() for x in xs if len(x)), xs, allow_unused=True
    )
    nested = torch.nested.as_nested_tensor(xs, layout=torch.jagged)
    padded = torch.nn.utils.rnn.pad_sequence(xs, batch_first=True)
    padded = padded.masked_fill(padded == 0, torch.nan)
    for given in (ragged(xs), nested, ragged(padded, LENGTHS)):
        found = autobatch.vmap(scan, ragged_out=form, **options)(given)["all"]
        rows = found[0] if form == "pad" else found.values() if form == "nested" else found
        loss = rows.square().sum() if form != "list" else sum(row.square().sum() for row in rows)
        got = torch.autograd.grad(loss, xs, allow_unused=True)
        for one, other in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other)


@pytest.mark.parametrize("options", CONFIGURATIONS[1:], ids=str)
def test_gradients_of_each_thread(options):
    def loss(weight, x):
        s = torch.zeros(3)
        for row in x:
            s = torch.tanh(s @ weight + row)
        return (s * x.sum(0)).sum() + (x @ weight).sum()

    weight, xs = torch.randn(3, 3), floats(*LENGTHS)
    for argnums in (0, 1):
        function = autobatch.vmap(
            autobatch.grad(loss, argnums), in_dims=(None, 0), ragged_out="list", **options
        )
        for found, x in zip(function(weight, ragged(xs)), xs, strict=True):
            wanted = torch.func.grad(loss, argnums)(weight, x)
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_tensors_are_read_when_called():
    xs = floats(2, 3)
    given = ragged(xs)
    xs[0].add_(1)
    check(autobatch.vmap(total)(given)[0][0], total(xs[0])[0])


# What it costs


def test_one_block_execution_a_step():
    xs = floats(*LENGTHS)
    for options in ({"executor": "vmap"}, {"trace_after": 0}, {"engine": "program_counter"}):
        function = autobatch.vmap(total, **options)
        function(ragged(xs))
        with autobatch.counts() as c:
            function(ragged(xs))
        assert c.by_block[("total", 1)] == max(LENGTHS)
        assert c.threads_by_block[("total", 1)] == sum(LENGTHS)
        assert c.block_executions == max(LENGTHS) + 2
        assert c.host_reads == max(LENGTHS) + 1  # the branches
        assert not c.other_reads and c.fallbacks == 0


def test_no_row_but_the_threads_own_is_read():
    """A split copies two numbers, and padding is not looked at."""
    xs = floats(*LENGTHS, width=1000)
    padded = torch.full((7, 50, 1000), torch.nan)
    for place, x in enumerate(xs):
        padded[place, : len(x)] = x

    def largest(x):
        s = torch.zeros(())
        for row in x:
            s = torch.maximum(s, row.amax())
        return s

    function = autobatch.vmap(largest, executor="vmap", fallback="error")
    found = function(ragged(padded, LENGTHS))
    check(found, torch.stack([largest(x) for x in xs]))


def test_fallbacks_are_told_of():
    def largest(x):
        return x.median(0).values

    with pytest.raises(autobatch.FallbackError):
        autobatch.vmap(largest, fallback="error")(ragged(floats(2, 3)))
    with autobatch.counts() as c:
        autobatch.vmap(largest)(ragged(floats(2, 2, 2, 3, 3, 3)))
    assert c.fallbacks == 0 and c.launches == 3  # a gather, one for each length
    with autobatch.counts() as c:
        autobatch.vmap(lambda x: x.mean(0), fallback="error")(ragged(floats(*LENGTHS)))
    assert c.launches == 1


def test_threads_with_rows_in_several_tables_meet():
    """One execution a step, whichever argument a thread goes through."""

    def either(x, y):
        z = x if len(x) > len(y) else y
        s = torch.zeros(3)
        for row in z[1:]:
            s = s * 0.5 + row
        return s

    xs, ys = floats(2, 5, 0, 3), floats(4, 1, 1, 3, seed=1)
    function = autobatch.vmap(either, executor="vmap")
    check(
        function(ragged(xs), ragged(ys)),
        torch.stack([either(x, y) for x, y in zip(xs, ys, strict=True)]),
    )
    with autobatch.counts() as c:
        function(ragged(xs), ragged(ys))
    loops = max(count for (name, _), count in c.by_block.items() if name == "either")
    assert loops == 4


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_a_nested_tensor_that_all_share(layout):
    shared = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=layout)

    def parts(nested, y):
        return (nested * 2).unbind()[1].sum() * y

    def fails(nested, y):
        return torch.linalg.inv(nested) * y

    ys = torch.tensor([1.0, 2.0])
    for _ in range(4):
        assert torch.equal(autobatch.vmap(parts, in_dims=(None, 0))(shared, ys), ys * 24)
    with pytest.raises(Exception) as of_one:
        fails(shared, ys[0])
    with pytest.raises(of_one.type) as caught:
        autobatch.vmap(fails, in_dims=(None, 0))(shared, ys)
    assert str(caught.value) == str(of_one.value)
    assert "nested float32 of 2" in caught.value.__notes__[0]


@pytest.mark.parametrize("way", [{}, {"plain": "never"}, {"chunk_size": 2}], ids=str)
def test_torch_takes_jagged_results_and_arguments_together(way):
    xs = [torch.randn(n, 3) for n in (3, 1, 2)]
    nested = torch.nested.as_nested_tensor(xs, layout=torch.jagged)

    def parts(x):
        return {"all": (x * 2, [x.sum(1)]), "some": x[:1]}

    for given in (nested, ragged(nested), ragged(xs)):
        found = autobatch.vmap(parts, ragged_out="nested", **way)(given)
        products = found["all"][0] * found["all"][1][0].unsqueeze(-1)
        for x, product in zip(xs, products.unbind(), strict=True):
            torch.testing.assert_close(product, x * 2 * x.sum(1, keepdim=True))
        assert [len(x) for x in found["some"].unbind()] == [1, 1, 1]
    total = autobatch.vmap(lambda x: x * 2, ragged_out="nested", **way)(nested) + nested
    torch.testing.assert_close(list(total.unbind()), [x * 3 for x in xs])
    gaps = torch.nested.nested_tensor_from_jagged(
        torch.randn(7, 3), nested.offsets(), lengths=torch.tensor([2, 1, 1])
    )
    found = autobatch.vmap(lambda x: x * 2, ragged_out="nested", **way)(gaps)
    torch.testing.assert_close(list(found.unbind()), [x * 2 for x in gaps.unbind()])
