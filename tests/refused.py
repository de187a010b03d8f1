"""Functions that lowering refuses, one for each reason."""

# ruff: noqa
# Constructs that are refused are written here on purpose.

from __future__ import annotations

import torch

TOTAL = 0
CACHE: dict = {}
ROWS = [[0, 1], [2]]
WEIGHT = torch.zeros(3)


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.history: list = []
        self.calls = 0
        self.inner = torch.nn.Identity()

    def sets_attribute(self, x):
        self.calls += 1
        return x

    def changes_buffer(self, x):
        self.seen.div_(x)
        return x

    def augments_item(self, x):
        self.history[0] += x
        return x

    def remembers(self, x):
        self.history.append(x)
        return x

    def sets_deeper(self, x):
        self.inner.training = False
        return self.inner(x)

    def deletes(self, x):
        del self.history[0]
        return x


def yields(n):
    for i in range(n):
        yield i


def yields_from(n):
    yield from range(n)


yielding_lambda = lambda n: (yield n)


async def asynchronous(n):
    return await n


def nested_async(n):
    async def wait():
        await n

    return wait


def tries_groups(x):
    try:
        return 1 / x
    except* ValueError:
        pass


def defines_class(x):
    class Local:
        value = x

    return Local


def writes_global(x):
    global TOTAL
    TOTAL += x
    return TOTAL


def assigns_global(x):
    global TOTAL
    a, TOTAL = x
    return a


def loops_global(x):
    global TOTAL
    for TOTAL in x:
        pass


def deletes_global(x):
    global TOTAL
    del TOTAL


def walrus_global(x):
    global TOTAL
    return (TOTAL := x)


def defines_global(x):
    global helper

    def helper():
        return x


def imports_global(x):
    global math
    import math


def walrus_in_kept_items(x):
    pairs = zip((x := x + i for i in range(3)), "ab")
    return x, pairs


def sets_nonlocal_first(x):
    def step():
        nonlocal count
        count = x

    step()
    count = 1
    return count


def deletes_nonlocal(x):
    count = 0

    def step():
        nonlocal count
        del count

    step()
    return x


def loses_nonlocal(x):
    count = 0

    def step():
        nonlocal count
        try:
            return 1 / x
        except ZeroDivisionError as count:
            return 0

    return step()


def sets_item(x):
    CACHE[x] = 1
    return x


def sets_deep_item(x):
    ROWS[0][1] = x
    return x


def sets_attribute(x):
    torch.backends.flag = x
    return x


def appends(x):
    ROWS.append(x)
    return ROWS


def changes_tensor(x):
    WEIGHT.clamp_(x)
    return WEIGHT


def in_nested(x):
    def remember(y):
        CACHE[y] = x

    remember(x)


def in_comprehension(x):
    return [CACHE.update({i: x}) for i in range(3)]


def unpacks_into(x):
    a, ROWS[0] = x
    return a


def make_closure(seen: list):
    def closure(x):
        seen.append(x)
        return x

    return closure


closed_over = make_closure([])


def make_counter():
    count = 0

    def counter(x):
        nonlocal count
        count += x
        return count

    return counter


writes_nonlocal = make_counter()


def reads_locals(x):
    return locals()["x"]


def evaluates(x):
    return eval("x + 1")


def bare_vars(x):
    return vars(), dir()


def calls_refused(x):
    return x + tries_groups(x)


def wide_text(x):
    return "é — 漢字", (yield x)
