"""``x[mask]`` with a mask of the thread's own: batched, though threads pick different numbers."""

from __future__ import annotations

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop

DRAW = torch.Generator().manual_seed(0)
XS = torch.randn(7, 6, 3, generator=DRAW)
TABLE = torch.arange(6.0)
BOUNDS = torch.tensor([-9.0, 0.3, 9.0, 0.0, -0.5, 0.3, 1.0])


def sums(x, bound):
    rows = x[x[:, 0] > bound]
    return rows.sum(0), rows.sum(), len(rows), rows.shape[0]


def centres(x, bound):
    close = x[:, 0] > bound
    centre = x[close].mean(0) if close.any() else x[0]
    while (x[close] - centre).abs().sum() > 4:
        centre = centre + 0.5
        close = close & (x[:, 1] > centre[1] - 1)
    return centre, close


def each(x, bound):
    total = torch.zeros(3)
    for row in x[x[:, 1] > bound]:
        if row[0] > 0:
            total = total + row
    return total


def elements(x, bound):
    return x[x > bound].sum(), TABLE[x[:, 2] > bound].sum(), len(x[(x > bound)])


def of_all(x, bound):
    """As many for each thread."""
    rows = x[x[:, 0] == x[:, 0]]
    return rows * 2, x[(x == x)] + bound


def written(x, bound):
    rows = x[x[:, 0] > bound]
    rows += 1
    if len(rows) > 2:
        rows[1] = 5.0
    return rows.sum(), x


def places(x, bound):
    high = x[:, 0] > bound
    index, (first, second) = torch.nonzero(high), torch.where(x > bound)
    chosen = torch.where(high)[0]
    return index.sum(), x[chosen].sum(0), TABLE[chosen].sum(), x[first, 0].sum(), len(second)


def in_one_column(x, bound):
    """The idioms for the places at which a mask is true; a write to one is seen in all of them."""
    found = torch.nonzero(x[:, 0] > bound)
    rows, again = found.flatten(), found.squeeze(1)
    part = x[again, 1:][:, 0].sum() + x[found.view(-1), 2].sum() + x[again, ..., None].sum()
    total = x[found.reshape((-1,))].sum(0), x[torch.squeeze(found, dim=-1), -1].sum()
    rows -= 1
    return part, total, found.sum(), len(again), again.sum(), x[rows, 0].sum()


def column_beyond(x, bound):
    chosen = torch.where(x[:, 0] > bound)[0]
    return x[chosen, 3].sum()


def one_left(x, bound):
    """Where one is left, there is no dimension either."""
    found = torch.nonzero(x[:, 0] > bound).squeeze()
    return found.dim(), x[found.reshape(-1), 0].sum()


def parts(x, bound):
    high = x[:, 0] > bound
    chosen = x[high, 1:]
    return x[high, 0].sum(), chosen.sum(0), torch.masked_select(x, x > bound).sum(), x.sum()


def put_back(x, bound):
    high, one = x[:, 0] > bound, bound > 0
    rows, elements, total, number = x * 1, x * 1, x.sum(0), bound * 1
    other = rows
    rows[high] = x[high] * 2
    elements[x > bound] = elements[x > bound].exp()
    total[one] = total[one] + 1
    number[one] = number[one].sqrt()
    rows[x[:, 0] == x[:, 0]] = other[x[:, 0] == x[:, 0]].flip(0)
    x[high] = rows[high]
    return rows, elements, total, number, other, x


def one_truth(x, bound):
    """A mask that all threads share."""
    always, never = torch.tensor(True), torch.tensor(1) > 2
    y = x * bound
    y[always] = y[always] + 1
    y[never] = y[never] + 1
    return y, y[always], y[never].shape[0]


def put_misfit(x, bound):
    x[x[:, 0] > bound] = x[x[:, 0] > bound].double()
    return x


def put_too_many(x, bound):
    x[x[:, 0] > bound] = x[x[:, 0] == x[:, 0]]
    return x


def beyond(x, bound):
    chosen = torch.where(x[:, 0] > bound)[0]
    return x[2:][chosen].sum()


def misfit(x, bound):
    return x[(x > bound)[:4]].sum()


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "function",
    [
        *(sums, centres, each, elements, of_all, written, places, parts, beyond, misfit),
        *(in_one_column, column_beyond, one_left, put_back, one_truth, put_misfit, put_too_many),
    ],
)
def test_a_mask_of_the_threads_own_picks_what_it_picks_for_one_example(function):
    assert_matches_loop(function, [XS, BOUNDS], rtol=1e-5, atol=1e-6)


BATCHED = (sums, centres, each, elements, of_all, places, parts, put_back, one_truth)


@pytest.mark.parametrize("function", BATCHED)
def test_it_is_batched(function):
    with autobatch.counts() as counts:
        autobatch.vmap(function)(XS, BOUNDS)
    assert counts.fallbacks == 0


def test_a_mask_is_one_host_read():
    with autobatch.counts() as counts:
        autobatch.vmap(lambda x, bound: x[x > bound].sum())(XS, BOUNDS)
    assert counts.other_reads == {"mask": 1}


def test_gradients_go_to_what_is_picked():
    xs = XS.clone().requires_grad_()
    autobatch.vmap(lambda x, bound: (x[x[:, 0] > bound] ** 2).sum())(xs, BOUNDS).sum().backward()
    chosen = (XS[:, :, :1] > BOUNDS[:, None, None]).expand_as(XS)
    assert torch.equal(xs.grad, torch.where(chosen, 2 * XS, torch.zeros(())))


def test_gradients_go_through_what_is_put_back():
    def total(x, bound):
        high, y = x[:, 0] > bound, x * 2
        y[high] = x[high].exp()
        return (y * x).sum()

    mine, loop = (XS.clone().requires_grad_() for _ in range(2))
    autobatch.vmap(total)(mine, BOUNDS).sum().backward()
    sum(map(total, loop, BOUNDS)).backward()
    torch.testing.assert_close(mine.grad, loop.grad)


def met(x, mask, other):
    rows, number = x[mask], other.sum().item()
    made = (rows + other, other * rows, rows > other, torch.maximum(rows, other.to(rows.dtype)))
    with_number = (rows * number, number - rows, rows >= number)
    return [((part * 1.5).sum(), part.sum()) for part in (*made, *with_number)]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
@pytest.mark.parametrize("own", [torch.float64, torch.float16, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(), (3,), (1,), (2, 1)])
def test_what_picked_rows_meet_keeps_its_dtype(dtype, own, shape):
    xs = torch.randint(-3, 4, (7, 5, 2, 3), generator=DRAW).to(dtype)
    masks = torch.rand(7, 5, generator=DRAW) > 0.5
    others = torch.randint(0, 3, (7, *shape), generator=DRAW).to(own)
    assert_matches_loop(met, [xs, masks, others], configurations=[{}], rtol=1e-3, atol=1e-3)
    with autobatch.counts() as counts:
        autobatch.vmap(met)(xs, masks, others)
    assert counts.fallbacks == 0


def suppressed(boxes, scores):
    """Non-maximum suppression as it is written with tensors."""
    kept = []
    order = scores.argsort(descending=True)
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    while order.numel() > 0:
        i = order[0].item()
        kept.append(i)
        if order.numel() == 1:
            break
        rest = order[1:]
        left = torch.maximum(boxes[i, 0], boxes[rest, 0])
        top = torch.maximum(boxes[i, 1], boxes[rest, 1])
        right = torch.minimum(boxes[i, 2], boxes[rest, 2])
        bottom = torch.minimum(boxes[i, 3], boxes[rest, 3])
        shared = (right - left).clamp(min=0) * (bottom - top).clamp(min=0)
        order = rest[shared / (areas[i] + areas[rest] - shared) <= 0.5]
    mask = torch.zeros(len(boxes), dtype=torch.bool)
    mask[kept] = True
    return mask, len(kept)


def test_boxes_at_places_of_each_threads_own_are_one_gather():
    corners = torch.rand(64, 8, 4, generator=torch.Generator().manual_seed(1))
    boxes = torch.cat([corners[..., :2], corners[..., :2] + 0.2 + corners[..., 2:]], -1)
    scores = torch.rand(64, 8, generator=torch.Generator().manual_seed(2))
    assert_matches_loop(suppressed, [boxes, scores], batch_sizes=(1, 2, 7, 64))
    with autobatch.counts() as counts:
        autobatch.vmap(suppressed)(boxes, scores)
    assert counts.fallbacks <= 2


def of_ragged(x, bound):
    places, mask = torch.nonzero(x[:, 0] > bound).flatten(), x[:, 1] > bound
    return x[places, 1].sum(), x[mask, 2].sum(), x[mask, 1:].sum(0), x[places, ..., 0].sum()


def ragged_beyond(x, bound):
    return x[torch.nonzero(x[:, 0] > bound).flatten() + 4, 1].sum()


@pytest.mark.parametrize("function", [of_ragged, ragged_beyond])
def test_parts_of_ragged_rows_at_places(function):
    rows = autobatch.ragged([XS[i, : (3 * i) % 6 + 1] for i in range(7)])
    assert_matches_loop(function, [rows, BOUNDS], rtol=1e-5, atol=1e-6)


def test_parts_of_ragged_rows_at_places_are_batched():
    rows = autobatch.ragged([XS[i, : (3 * i) % 6 + 1] for i in range(7)])
    with autobatch.counts() as counts:
        autobatch.vmap(of_ragged)(rows, BOUNDS)
    assert counts.fallbacks == 0
