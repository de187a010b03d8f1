"""Programs of small tensors that are written, looked at in parts, and handed on."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import torch
from torch import Tensor


def bubble_sort(x: Tensor) -> Tensor:
    n = x.shape[0]
    for i in range(n):
        for j in range(n - 1 - i):
            if x[j] > x[j + 1]:
                lower = x[j + 1].clone()
                x[j + 1] = x[j]
                x[j] = lower
    return x


def exchanged(x: Tensor) -> Any:
    a, b = x.clone(), x * 2
    k = 0
    while a.sum() < b.sum() and k < 5:
        a, b = b, a
        a[0] = a[0] + 1
        k += 1
    return a, b, k


def augmented(x: Tensor) -> Tensor:
    x[0] = 1.0
    x[-1] += 2
    x[1:3] *= 2
    if x.sum() < 1e30:
        x += 1
    return x


def rotations(m: Tensor) -> Tensor:
    """Eigenvalues by Jacobi's rotations."""
    a = m + m.T
    n = a.shape[0]
    for _ in range(6):
        for p in range(n):
            for q in range(p + 1, n):
                if a[p, q].abs() > 1e-9:
                    theta = (a[q, q] - a[p, p]) / (2 * a[p, q])
                    t = torch.sign(theta) / (theta.abs() + torch.sqrt(theta * theta + 1))
                    c = 1 / torch.sqrt(t * t + 1)
                    r = torch.eye(n, dtype=a.dtype)
                    r[p, p] = c
                    r[q, q] = c
                    r[p, q] = t * c
                    r[q, p] = -t * c
                    a = r.T @ a @ r
    return torch.diagonal(a)


def eliminated(m: Tensor) -> Any:
    a = m.clone() + 4 * torch.eye(3, dtype=m.dtype)
    for k in range(3):
        for i in range(k + 1, 3):
            a[i] = a[i] - a[i, k] / a[k, k] * a[k]
    return a, torch.diagonal(a).prod()


def transposed(m: Tensor) -> Any:
    a = m.t() * 2
    b = a.reshape(9)
    if b.sum() < 1e30:
        b[0] = 3.0
    return a, b, a.is_contiguous()


def rows(m: Tensor) -> Tensor:
    for row in m:
        if row.sum() > 0:
            return row
    return m[0] * 0


def conjugate_gradients(m: Tensor) -> Tensor:
    a = m @ m.T + torch.eye(3, dtype=m.dtype)
    b = m[0]
    x = torch.zeros_like(b)
    r = b - a @ x
    p, rs = r, r @ r
    while rs > 1e-12:
        step = rs / (p @ (a @ p))
        x = x + step * p
        r = r - step * (a @ p)
        new = r @ r
        p = r + new / rs * p
        rs = new
    return x


class Counter:
    def __init__(self, step: int) -> None:
        self.step = step
        self.count = 0
        self.total = 0.0

    def add(self, value: float) -> float:
        self.total += value
        self.count += self.step
        return self.total


@dataclasses.dataclass
class Best:
    value: float
    at: int = -1


class Pair(NamedTuple):
    first: Tensor
    second: Tensor
    count: int = 2


def counted(x: Tensor) -> Any:
    counter, best = Counter(2), Best(-1e9)
    other = counter
    for i, v in enumerate(x):
        if v > 0:
            counter.add(v.item())
        else:
            other.count += 1
        if v.item() > best.value:
            best.value = v.item()
            best.at = i
    return counter.total, counter.count, best.at


def paired(x: Tensor) -> Any:
    pair = Pair(x + 1, x * 2)
    while pair.first.sum() > 0:
        pair = Pair(pair.first - 1, pair.second + pair.first, count=pair.count + 1)
    return pair.second, pair.count


def smoothed(v: Tensor, depth: int) -> Tensor:
    if depth == 0:
        return v * 0.5
    return smoothed(v, depth - 1) + smoothed(v + depth, depth - 1)


def halves(x: Tensor) -> Tensor:
    """Recursion that is lent parts of an array, and gives new ones."""
    return smoothed(x.clone(), 3)


COMPILED = {
    "x": (bubble_sort, exchanged, augmented, counted, paired, halves),
    "m": (rotations, eliminated, transposed, rows, conjugate_gradients),
}


# What a write shows elsewhere has no machine code, and must be shown all the same.


def seen_in_a_part(x: Tensor) -> Any:
    y = x.clone()
    z = y[1:3]
    y[2] = 5.0
    return y, z


def seen_in_an_element(x: Tensor) -> Any:
    y = x.clone()
    z = y[0]
    y[0] = 5.0
    return y, z


def seen_under_another_name(x: Tensor) -> Any:
    y = x.clone()
    z = y
    z[0] = 5.0
    return y, z


def seen_after_a_branch(x: Tensor) -> Any:
    y = x.clone()
    v = y[2:4]
    if v.sum() > 0:
        y[2] = 0.0
    return y, v


def handed_back(v: Tensor) -> Tensor:
    return v


def parts_of(v: Tensor) -> Any:
    return v[1:], v[0]


def seen_through_a_call(x: Tensor) -> Any:
    y = x.clone()
    z = handed_back(y)
    y[0] = 3.0
    return y, z


def seen_through_parts(x: Tensor) -> Any:
    y = x.clone()
    z, s = parts_of(y)
    y[0] = 3.0
    y[1] = 4.0
    return y, z, s


def seen_in_a_tuple(x: Tensor) -> Any:
    y = x.clone()
    t = (y, y)
    y[0] = 1.0
    return t


def seen_while_it_goes_over(x: Tensor) -> Tensor:
    y = x.clone()
    for v in y:
        y[0] = y[0] + v
    return y


def seen_in_place(x: Tensor) -> Any:
    y = x.clone()
    z = y
    y += 1
    v = y[2]
    v += 1
    return y, z


def seen_in_a_view(x: Tensor) -> Any:
    y = x.clone()
    z = y.view(2, 3)
    z[0, 0] = 9.0
    return y, z


def seen_in_an_object(x: Tensor) -> Any:
    y = x.clone()
    best = Best(0.0)
    best.held = y[0]  # type: ignore[attr-defined]
    y[0] = 7.0
    return best.held + y.sum()  # type: ignore[attr-defined]


class Held:
    def __init__(self, value: Any) -> None:
        self.value = value


def put(holder: Held, value: Tensor) -> None:
    holder.value = value


def seen_in_an_object_made_elsewhere(x: Tensor) -> Any:
    y = x.clone()
    a, b = Held(y[0]), Held((y[1], 2.0))
    c = Held(0.0 * y.sum())
    put(c, y[2])
    if y[3] < 1e9:
        y[0] = y[1] = y[2] = 9.0
    return a.value, b.value[0], c.value


def with_an_element_of_itself(x: Tensor) -> Any:
    if x[0] < 1e9:
        x *= x[0]
    return x


def with_an_element_kept(x: Tensor) -> Any:
    e = x[1]
    if x[0] < 1e9:
        x[1:3] *= e
    return x


def with_another_shape(x: Tensor) -> Any:
    if x[0] < 1e9:
        x += torch.ones(1, 6)
    return x


class Slotted:
    __slots__ = ("v",)

    def __init__(self, v: float) -> None:
        self.v = v


def in_no_slot(x: Tensor) -> Any:
    o = Slotted(1.0)
    if x[0] < 1e9:
        o.q = 2.0  # type: ignore[attr-defined]
    return x + o.v


def deviation_of_ints(x: Tensor) -> Any:
    return x.int().std() if x[0] < 1e9 else x[0]


def softmax_of_ints(x: Tensor) -> Any:
    return x.int().softmax(0) if x[0] < 1e9 else x


def place_among_bools(x: Tensor) -> Any:
    return (x > 0).argmax() if x[0] < 1e9 else x[0]


def largest_beside_a_number(x: Tensor) -> Any:
    n = 1.0
    while n < 2 and x[0] < 1e9:
        n += 0.5
    return torch.maximum(x, n)  # type: ignore[arg-type]


def of_other_shapes_by_branch(x: Tensor) -> Any:
    return x if x[0] > 0 else x[0]


def of_other_dtypes_by_branch(x: Tensor) -> Any:
    return x.float() if x[0] > 0 else x


def of_other_strides_by_branch(x: Tensor) -> Any:
    m = torch.outer(x, x)
    return m.t() if x[0] > 0 else m


FAILING = (
    *(with_an_element_of_itself, with_an_element_kept, with_another_shape, in_no_slot),
    *(deviation_of_ints, softmax_of_ints, place_among_bools, largest_beside_a_number),
    *(of_other_shapes_by_branch, of_other_dtypes_by_branch, of_other_strides_by_branch),
)

SEEN = (
    *(seen_in_a_part, seen_in_an_element, seen_under_another_name, seen_after_a_branch),
    *(seen_through_a_call, seen_through_parts, seen_in_a_tuple, seen_while_it_goes_over),
    *(seen_in_place, seen_in_a_view, seen_in_an_object, seen_in_an_object_made_elsewhere),
)
