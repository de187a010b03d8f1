"""What roots reach: cells through containers and views, each once, and the views that need none.

Nothing here moves rows; ``settle`` turns views whose base nothing else reaches into plain columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from autobatch.values.cells import Cell, Container, View, read

REFERRING = frozenset((View, Container))
"""Values that refer to other cells."""


def reached(cells: Iterable[Cell]) -> Iterator[Cell]:
    """All cells that some lead to, themselves among them, each once."""
    waiting = list(cells)
    if REFERRING.isdisjoint([type(cell.value) for cell in waiting]):
        yield from {id(cell): cell for cell in reversed(waiting)}.values()
        return
    seen: set[int] = set()
    while waiting:
        cell = waiting.pop()
        if id(cell) in seen:
            continue
        seen.add(id(cell))
        yield cell
        value = cell.value
        if type(value) is Container:
            waiting += value.children()
        elif type(value) is View:
            waiting += (value.base, *value.args)


def plain_views(roots: Sequence[Cell]) -> list[Cell]:
    """The views whose base nothing else reaches, bases first: the base need not move with them."""
    if not any_view(roots):
        return []
    references: dict[int, int] = {}
    views: list[Cell] = []
    for root in roots:
        count(root, references, views)
    plain: dict[int, Cell] = {}
    for cell in reversed(views):
        base = cell.value.base  # type: ignore[union-attr]
        if references[id(base)] == 1 and (type(base.value) is not View or id(base) in plain):
            plain[id(cell)] = cell
    return list(plain.values())


def any_view(roots: Iterable[Cell]) -> bool:
    """Whether the roots reach a view."""
    waiting = [value for root in roots if type(value := root.value) in REFERRING]
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if type(value) is View:
            return True
        assert type(value) is Container
        if id(value) not in seen:
            seen.add(id(value))
            waiting += [
                part for child in value.children() if type(part := child.value) in REFERRING
            ]
    return False


def parts(cell: Cell, closed: Callable[[Container], bool] | None = None) -> Iterator[Cell]:
    """A cell and all that it holds in containers, each once: what it holds may hold it again.

    Containers that are ``closed`` are not looked into.
    """
    waiting, seen = [cell], {id(cell)}
    while waiting:
        each = waiting.pop()
        yield each
        if type(each.value) is Container and not (closed and closed(each.value)):
            held = {id(child): child for child in each.value.children() if id(child) not in seen}
            seen.update(held)
            waiting.extend(reversed(held.values()))


def holds_itself(cell: Cell) -> bool:
    """Whether there is a container that what it holds leads back to."""
    value = cell.value
    if type(value) is not Container or all(
        type(c.value) is not Container for c in value.children()
    ):
        return False
    opened, done = set[int](), set[int]()
    waiting = [(cell, False)]
    while waiting:
        each, is_left = waiting.pop()
        if is_left:
            done.add(id(each))
        elif type(each.value) is Container and id(each) not in done:
            if id(each) in opened:
                return True
            opened.add(id(each))
            waiting.append((each, True))
            waiting += [(child, False) for child in each.value.children()]
    return False


def count(cell: Cell, references: dict[int, int], views: list[Cell]) -> None:
    """Add up how often cells are referred to, and note the views, the outermost first."""
    references[id(cell)] = references.get(id(cell), 0) + 1
    if references[id(cell)] > 1:
        return
    value = cell.value
    if type(value) is Container:
        for child in value.children():
            count(child, references, views)
    elif type(value) is View:
        views.append(cell)
        count(value.base, references, views)
        for arg in value.args:
            count(arg, references, views)


def settle(roots: Sequence[Cell]) -> None:
    """Turn views whose base nothing else reaches into plain columns.

    The cells must be those of one group that keeps nothing but what the roots reach.
    """
    for cell in plain_views(roots):
        cell.value = read(cell)
