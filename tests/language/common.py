"""What the corpus is made with: a decorator that notes arguments, a log of effects, classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

log: list[Any] = []


def case(*arguments: tuple[Any, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Notes the tuples of arguments that a function of the corpus is tried on."""

    def noted(func: Callable[..., Any]) -> Callable[..., Any]:
        func.arguments = arguments  # type: ignore[attr-defined]
        return func

    return noted


def seen(value: Any) -> Any:
    """Gives its argument back, and notes that it was evaluated."""
    log.append(value)
    return value


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Node:
    value: Any
    children: list[Node] = field(default_factory=list)

    def total(self) -> Any:
        result = self.value
        for child in self.children:
            result += child.total()
        return result

    @property
    def double(self) -> Any:
        return 2 * self.value

    @staticmethod
    def made(value: Any) -> Node:
        return Node(value)

    @classmethod
    def pair(cls, value: Any) -> Node:
        return cls(value, [cls(value + 1)])


class Base:
    def __init__(self, n: Any) -> None:
        self.n = n
        self.__hidden = n + 1

    def hidden(self) -> Any:
        return self.__hidden

    def size(self) -> Any:
        return self.n


class Derived(Base):
    def size(self) -> Any:
        return super().size() * 10


class Resource:
    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> str:
        seen(f"enter {self.name}")
        return self.name

    def __exit__(self, kind: Any, *rest: Any) -> None:
        seen(f"exit {self.name} {kind and kind.__name__}")
