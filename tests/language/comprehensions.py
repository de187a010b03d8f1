"""Comprehensions and generator expressions, alone and in reductions."""

# ruff: noqa
# What users write, idiomatic or not, is what the corpus is for.

from __future__ import annotations

import itertools

from tests.language.common import case, seen


@case(([1, 2, 3],), ([],), ([5],))
def comprehensions(xs):
    n = 10
    return (
        [x * n for x in xs],
        [(x, y) for x in xs if x > 1 for y in xs if y != x],
        {x % 2 for x in xs},
        {x: n for x in xs},
        [[y for y in range(x)] for x in xs],
        [x for x in xs if x if x > 1],
        [(n, last := x) for x in xs],
        [a + b for a, b in zip(xs, xs, strict=True)],
        [x for x in [y for y in xs]],
        {seen(x): seen(-x) for x in xs},
    )


@case(([1, 2, 3],), ([0],), ([],))
def reductions(xs):
    return (
        sum(x * x for x in xs),
        sum((x for x in xs), 10),
        any(seen(x) > 1 for x in xs),
        all(seen(x) > 1 for x in xs),
        len([x for x in xs]),
        sorted(-x for x in xs),
        list(x for x in xs),
        tuple(x for x in xs if x),
        max((x for x in xs), default=None),
        dict((x, x) for x in xs),
        "".join(str(x) for x in xs),
    )


@case(([],))
def empty_min(xs):
    return min(x for x in xs)


@case(([1, 2],))
def comprehension_scopes(xs):
    x = "outer"
    ys = [x for x in xs]
    y = [x for _ in xs]
    fs = [lambda: (x, z) for z in xs]
    return x, ys, y, [f() for f in fs]


@case((3,))
def conditions_inside(n):
    return (
        [x if x % 2 else -x for x in range(n)],
        [x and y or -1 for x in range(n) for y in range(x)],
        [y for x in range(n) if (y := x * x) > 0 and x != 1],
        {k: v for k, v in zip("abc", range(n)) if not v == 1},
        [[i + j + n for j in range(2)] for i in range(2)],
        [x for x in range(n) if all(x % y for y in range(2, x))],
        any((seen(x), x > 0)[1] and (seen(-x), x > 1)[1] for x in range(n)),
        sum(1 for _ in range(n)),
        sum([x] for x in range(0)),
        *(x for x in "ab"),
        *[x for x in "cd"],
    )


@case((2,))
def lazy_generators(n):
    items = (seen(x) for x in range(n))
    total = sum(items)
    return total, list(items), max(x for x in range(n)), sum((x for x in range(n)), start=5)


@case(([1, 2],), ([],))
def unbound_targets(xs):
    [x for x in xs]
    for y in xs:
        pass
    return y, x


@case(([[1, 2], [3]],))
def targets(xss):
    pairs = [(a, b) for a, *b in xss]
    d = {}
    [0 for d["k"] in (1, 2)]
    return pairs, d, [[x for x in x] for x in xss]


@case((2, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (0, 6), (0, 7))
def unbound_in_a_comprehension(n, which):
    if n:
        kept = n
    try:
        if which == 0:
            return [kept * x for x in range(n)]
        if which == 1:
            return [kept * x for x in range(2)]
        if which == 2:
            return sum(kept * x for x in range(2))
        if which == 3:
            return {kept for x in range(2)}, [0]
        if which == 4:
            return [x for x in kept]
        if which == 5:
            return [[y + kept for y in range(2)] for x in range(2)]
        if which == 6:
            return any(x > kept for x in range(2))
        return kept
    except NameError as missing:
        return type(missing).__name__, str(missing), missing.name


@case((2, 0), (0, 1), (0, 2), (0, 3))
def unbound_and_captured(n, which):
    if n:
        kept = n
    later = lambda: kept
    try:
        if which == 0:
            return [kept * x for x in range(n)] + [later()]
        if which == 1:
            return sum(kept * x for x in range(2))
        if which == 2:
            return later()
        return kept
    except NameError as missing:
        return type(missing).__name__, str(missing), missing.name


@case((1,), (0,))
def unbound_from_the_iterable_on(n):
    found = []
    if n:
        total = n
    for read in (0, 1, 2):
        try:
            if read == 0:
                found.append([(x, y) for x in range(2) for y in range(total)])
            elif read == 1:
                found.append([total := x + total for x in range(3)])
            else:
                found.append(list(x for x in range(total)))
        except NameError as missing:
            found.append((type(missing).__name__, str(missing), missing.name))
    return found


@case((0,), (1,), (3,), (5,), (9,))
def each_item_is_made_where_a_loop_takes_it(n):
    log, k = [], 1
    for q in (log.append(z) or 12 // (3 - z) * k for z in range(9)):
        k += 1
        if q == 6:
            continue
        log.append(q)
        if len(log) > n:
            break
    else:
        log.append("end")
    return str(log), q, k


@case((0,), (2,), (4,))
def loops_over_nested_items(n):
    x = 7
    found = []
    for x, *rest in ((x, y, n) for x in range(n) for y in range(x) if y != 1):
        if any(z == y for y in rest for z in (found[-1:] and [3])):
            return str(found)
        found.append(x * 10 + rest[0])
    return str(found), x


@case((3,), (20,))
def the_first_square_above(n):
    for square in (i * i for i in itertools.count()):
        if square > n:
            return square


@case((0,), (2,), (5,))
def kept_items_read_what_is_there_when_they_are_made(n):
    k = n
    kept = (q * k for q in range(4) if q != k)
    again = kept
    while k < 7:
        k += 3 if n else 4
    return list(again), next(kept, "end"), k


@case((0,), (1,), (4,))
def the_next_of_items_without_end(n):
    found = []
    squares = ((i, i * i + n) for i in itertools.count())
    alias = squares
    for _ in range(n):
        found.append(next(alias))
    return found, next(squares), 9 in (i for i in itertools.count(n))


@case((0,), (1,), (3,), (6,))
def items_behind_a_stop_are_not_made(n):
    log = []
    for i, q in enumerate(log.append(z) or 12 // (3 - z) for z in range(9)):
        if i >= n:
            break
        log.append(q)
    for a, b in zip((log.append(z) or z for z in range(5)), range(n)):
        log.append((a, b))
    log.append(n in (log.append(z) or 6 // (2 - z) for z in range(4) if n < 2))
    return str(log)


@case((0,), (2,), (3,))
def a_function_takes_items(n):
    def taken(items):
        first = next(items)
        for item in items:
            if item > n:
                return first, item, list(items)
        return first

    return taken(a * b for a, b in zip(range(1, 6), itertools.count()) for _ in range(a % 3))


@case((0,), (1,), (2,))
def an_item_that_raises_is_the_last(n):
    map = filter = iter = range(n)
    kept = (6 // (n - q) for q in itertools.count())
    found = [str((map, filter, iter))]
    for _ in range(n + 2):
        try:
            found.append(next(kept))
        except (ZeroDivisionError, StopIteration) as error:
            found.append(type(error).__name__)
    source = [*map].__iter__()
    stopped = (next(source) for _ in range(2))
    try:
        for pair in zip(stopped, "ab"):
            found.append(pair)
    except RuntimeError as error:
        found.append(str(error))
    return found


@case((0,), (3,))
def a_name_set_in_kept_items(n):
    kept = enumerate(y + z for x in range(n) if (y := x * 2) != 2 for z in (y, 1))
    return next(kept, None), list(kept)


@case((0,), (2,), (4,))
def items_under_a_name_are_resumed(n):
    k = 1
    kept = (10 * x + k for x in range(6) if x != 1)
    first = next(kept)
    k = n
    for item in kept:
        k += 1
        if item > 10 * n:
            break
    low, *rest = kept
    return first, low, rest, sum(kept), k
