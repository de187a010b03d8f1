"""Assignment in every form, `del`, and variables that have no value."""

# ruff: noqa
# What users write, idiomatic or not, is what the corpus is for.

from __future__ import annotations

from tests.language.common import Node, case, seen

LIMIT = 3


@case((1,), ("a",))
def names_alone(x):
    """A name that stands alone is read all the same."""
    try:
        raise KeyError(x)
    except KeyError as error:
        found = [str(error)]
    try:
        error
    except NameError:
        found.append("no error")
    del x
    try:
        x
    except UnboundLocalError:
        found.append("no x")
    return found


@case((1, 2), ("a", "b"))
def swap(a, b):
    a, b = b, a
    return a, b


@case((1, 2, 3))
def rotate(a, b, c):
    a, b, c = c, a, b
    [a, b] = (b, a)
    return a, b, c


@case(([1, 2, 3],), ([1],), ([],))
def starred(xs):
    first, *rest = xs
    *front, last = xs
    return first, rest, front, last


@case((1, (2, [3, 4])), (1, (2, [3])), (1, 2))
def nested_unpacking(a, b):
    (c, (d, e)), f = (a, b), 5
    ((g, [h, i]),) = ((a, [c, f]),)
    d, (e, *_) = b
    return c, d, e, f, g, h, i


@case((3,))
def chained(x):
    a = b = [x]
    a.append(x)
    c = d = x
    c += 1
    return a, b, c, d


@case((4,))
def annotated(x):
    y: int = x + 1
    z: str
    return y


@case((7, 2), (7.5, 2), (7, 0), ([1], [2]))
def augmented(x, y):
    x += y
    z = x
    z *= 2
    z -= y
    z //= y
    z **= 2
    z %= 5
    return x, z


@case((6, 3))
def augmented_bits(x, y):
    z = x
    z &= y
    w = x
    w |= y
    w ^= 1
    w <<= 2
    w >>= 1
    return z, w, ~w, x / y, +x, -x, not x


@case(([1, 2, 3, 4],))
def subscripts(xs):
    xs[0] = 10
    xs[1:3] = [7, 8, 9]
    xs[-1] += 5
    del xs[0]
    xs[seen(0)], xs[seen(1)] = xs[seen(1)], xs[seen(0)]
    return xs, xs[::2], xs[1:], xs[:-1], xs[:]


@case((1,))
def attributes(x):
    node = Node(x)
    node.value += 5
    node.other = node.value
    del node.other
    node.children = [Node(2)]
    return node, node.double, node.total(), hasattr(node, "other")


@case((1,))
def order_of_assignment(x):
    xs = [0, 0, 0]
    seen(xs)[seen(1)] = seen(x)
    seen(xs)[seen(2)] += seen(x)
    a, xs[seen(0)] = seen(5), seen(6)
    return xs, a


@case((2, 3))
def aliases_in_pairs(i, j):
    i, xs = 1, [i, j]
    i, xs[i] = 0, i
    j, i = i + j, j
    return i, j, xs


@case((2,))
def walrus(x):
    if (y := x + 1) > 2:
        z = y
    total = (w := x) + (w := w + 1) + w
    return y, z, w, total


@case((3, 4))
def walrus_reassigns(x, y):
    pair = (x, (x := 10), x)
    a = x + (x := 1) + x
    return pair, a, x


@case((True,), (False,))
def unbound(flag):
    if flag:
        x = 1
    return x


@case((True,), (False,))
def deletion(flag):
    x, y = 1, [1, 2]
    del y[0], y
    if flag:
        del x
    return x


@case((1,))
def local_shadows(x):
    def inner():
        return LIMIT

    LIMIT = x
    return inner(), LIMIT


@case((1,))
def absent_name(x):
    return x + not_defined_anywhere
