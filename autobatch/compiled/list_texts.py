"""Python text of what lists, slices, comparisons, sorts, heaps and bisections do.

Where it raises, the thread gives up.
"""

from __future__ import annotations

from typing import Any


def extended(owner: Any, items: Any) -> None:
    for item in items:
        owner.append(item)


def extended_by_list(owner: Any, items: Any) -> None:
    for at in range(len(items)):
        owner.append(items[at])


def added(owner: Any, items: Any) -> Any:
    made: list[Any] = []
    for item in owner:
        made.append(item)
    for item in items:
        made.append(item)
    return made


def repeated(items: Any, count: Any) -> Any:
    made: list[Any] = []
    for _ in range(count):
        for item in items:
            made.append(item)
    return made


def copied(items: Any) -> Any:
    made: list[Any] = []
    for item in items:
        made.append(item)
    return made


def ends(many: Any, start: Any, stop: Any, step: Any) -> Any:
    """What ``slice.indices`` gives."""
    if step is None:
        step = 1
    if step == 0:
        raise ValueError
    least, most = (0, many) if step > 0 else (-1, many - 1)
    if start is None:
        start = least if step > 0 else most
    else:
        if start < 0:
            start += many
        start = least if start < least else most if start > most else start
    if stop is None:
        stop = most if step > 0 else least
    else:
        if stop < 0:
            stop += many
        stop = least if stop < least else most if stop > most else stop
    return start, stop, step


def sliced(items: Any, start: Any, stop: Any, step: Any) -> Any:
    start, stop, step = ends(len(items), start, stop, step)
    made: list[Any] = []
    while start < stop if step > 0 else start > stop:
        made.append(items[start])
        start += step
    return made


def put(items: Any, start: Any, stop: Any, step: Any, others: Any) -> None:
    whole = step is None or step == 1
    start, stop, step = ends(len(items), start, stop, step)
    made = copied(others)
    if whole and stop < start:
        stop = start
    many = len(range(start, stop, step))
    if many == len(made):
        for item in made:
            items[start] = item
            start += step
        return
    if not whole:
        raise ValueError
    for at in range(stop, len(items)):
        made.append(items[at])
    while len(items) > start:
        items.pop()
    for item in made:
        items.append(item)


def cut(items: Any, start: Any, stop: Any, step: Any) -> None:
    start, stop, step = ends(len(items), start, stop, step)
    many, left = len(range(start, stop, step)), 0
    if step < 0:
        start, step = start + (many - 1) * step, -step
    for at in range(len(items)):
        if many and at == start:
            start += step
            many -= 1
        else:
            items[left] = items[at]
            left += 1
    while len(items) > left:
        items.pop()


def is_it(item: Any, other: Any) -> Any:
    if item == other:
        return True
    if item != item and other != other:
        raise ValueError
    return False


def index(items: Any, other: Any) -> Any:
    at = 0
    for item in items:
        if is_it(item, other):
            return at
        at += 1  # noqa: SIM113
    raise ValueError


def count(items: Any, other: Any) -> Any:
    found = 0
    for item in items:
        if is_it(item, other):
            found += 1
    return found


def contained(items: Any, other: Any) -> Any:
    for item in items:  # noqa: SIM110
        if is_it(item, other):
            return True
    return False


def not_contained(items: Any, other: Any) -> Any:
    return not contained(items, other)


def without(items: Any, other: Any) -> None:
    items.pop(index(items, other))


def turned(items: Any) -> None:
    low, high = 0, len(items) - 1
    while low < high:
        one, other = items[low], items[high]
        items[low] = other
        items[high] = one
        low, high = low + 1, high - 1


def itself(item: Any) -> Any:
    return item


def first_of(pair: Any) -> Any:
    return pair[0]


def merged(made: Any, falls: Any, key: Any) -> Any:
    """A merge sort: as stable as Python's, so they are the same where no key is nan."""
    other = copied(made)
    many, width = len(made), 1
    while width < many:
        start = 0
        while start < many:
            middle, end = min(start + width, many), min(start + 2 * width, many)
            left, right, at = start, middle, start
            while at < end:
                if right >= end:
                    first = True
                elif left >= middle:
                    first = False
                elif falls:
                    first = not key(made[left]) < key(made[right])
                else:
                    first = not key(made[right]) < key(made[left])
                if first:
                    other[at] = made[left]
                    left += 1
                else:
                    other[at] = made[right]
                    right += 1
                at += 1
            start = end
        made, other = other, made
        width *= 2
    return made


def in_order(items: Any, falls: Any) -> Any:
    made: list[Any] = []
    for item in items:
        if item != item:
            raise ValueError
        made.append(item)
    return merged(made, falls, itself)


def in_order_by(items: Any, falls: Any, key: Any) -> Any:
    pairs: list[Any] = []
    for item in items:
        own = key(item)
        if own != own:
            raise ValueError
        pairs.append((own, item))
    made: list[Any] = []
    for pair in merged(pairs, falls, first_of):
        made.append(pair[1])
    return made


def put_in_order(items: Any, falls: Any) -> None:
    ordered = in_order(items, falls)
    for at in range(len(items)):
        items[at] = ordered[at]


def put_in_order_by(items: Any, falls: Any, key: Any) -> None:
    held: list[Any] = []  # not ``copied``: lists of one place hold the types of all of them
    for item in items:
        held.append(item)
    items.clear()  # as a key sees it
    ordered = in_order_by(held, falls, key)
    if len(items):
        raise ValueError
    for item in ordered:
        items.append(item)


def equal(one: Any, other: Any) -> Any:
    if len(one) != len(other):
        return False
    for at in range(len(one)):  # noqa: SIM110
        if not is_it(one[at], other[at]):
            return False
    return True


def unequal(one: Any, other: Any) -> Any:
    return not equal(one, other)


def before(one: Any, other: Any) -> Any:
    for at in range(min(len(one), len(other))):
        if not is_it(one[at], other[at]):
            return one[at] < other[at]
    return len(one) < len(other)


def not_after(one: Any, other: Any) -> Any:
    for at in range(min(len(one), len(other))):
        if not is_it(one[at], other[at]):
            return one[at] <= other[at]
    return len(one) <= len(other)


def after(one: Any, other: Any) -> Any:
    return before(other, one)


def not_before(one: Any, other: Any) -> Any:
    return not_after(other, one)


def numbers_of(rows: Any) -> Any:
    made: list[Any] = []
    for row in rows:
        made.append(row.tolist())
    return made


def raised(heap: Any, first: Any, at: Any) -> None:
    """Bring an item of a heap towards its top, as far as ``first``."""
    item = heap[at]
    while at > first:
        above = (at - 1) // 2
        if not item < heap[above]:
            break
        heap[at] = heap[above]
        at = above
    heap[at] = item


def lowered(heap: Any, at: Any) -> None:
    """Bring an item of a heap to a leaf, and from there up: the comparisons are heapq's."""
    first, end, item = at, len(heap), heap[at]
    child = 2 * at + 1
    while child < end:
        if child + 1 < end and not heap[child] < heap[child + 1]:
            child += 1
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = item
    raised(heap, first, at)


def pushed(heap: Any, item: Any) -> None:
    heap.append(item)
    raised(heap, 0, len(heap) - 1)


def popped(heap: Any) -> Any:
    last = heap.pop()
    if len(heap) == 0:
        return last
    top = heap[0]
    heap[0] = last
    lowered(heap, 0)
    return top


def heaped(heap: Any) -> None:
    for at in range(len(heap) // 2 - 1, -1, -1):
        lowered(heap, at)


def bisected_left(items: Any, item: Any) -> int:
    low, high = 0, len(items)
    while low < high:
        middle = (low + high) // 2
        if items[middle] < item:
            low = middle + 1
        else:
            high = middle
    return low


def bisected(items: Any, item: Any) -> int:
    low, high = 0, len(items)
    while low < high:
        middle = (low + high) // 2
        if item < items[middle]:
            high = middle
        else:
            low = middle + 1
    return low


def inserted_left(items: Any, item: Any) -> None:
    items.insert(bisected_left(items, item), item)


def inserted(items: Any, item: Any) -> None:
    items.insert(bisected(items, item), item)
