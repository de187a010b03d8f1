"""Classes of the user's own: made in a program, or there before it; protocols; dispatch."""

# ruff: noqa
# What users write, idiomatic or not, is what the corpus is for.

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from tests.language.common import case, seen


class Vector:
    def __init__(self, x, y):
        self.x = x
        self.y = y

    def __add__(self, other):
        if not isinstance(other, Vector):
            return NotImplemented
        return Vector(self.x + other.x, self.y + other.y)

    def __radd__(self, other):
        return self if other == 0 else NotImplemented

    def __mul__(self, factor):
        return Vector(self.x * factor, self.y * factor)

    __rmul__ = __mul__

    def __neg__(self):
        return Vector(-self.x, -self.y)

    def __eq__(self, other):
        return isinstance(other, Vector) and self.x == other.x and self.y == other.y

    def __hash__(self):
        return hash((self.x, self.y))

    def __lt__(self, other):
        return (self.x, self.y) < (other.x, other.y)

    def __abs__(self):
        return abs(self.x) + abs(self.y)

    def __bool__(self):
        return bool(self.x or self.y)

    def __len__(self):
        return 2

    def __getitem__(self, i):
        if i == 0:
            return self.x
        if i == 1:
            return self.y
        raise IndexError(i)

    def __repr__(self):
        return f"Vector({self.x}, {self.y})"

    def __call__(self, a, b=1):
        return self.x * a + self.y * b

    def __contains__(self, item):
        return item == self.x or item == self.y


@case((1, 2), (3, 4), (0, 0))
def vectors(a, b):
    v = Vector(a, b)
    w = 2 * v + Vector(1, 1) * 3
    return w.x, w.y, abs(-w), bool(v), len(v), v(2), v(2, b=3), a in v, 7 in v, v == Vector(a, b)


@case((1, 2), (3, 4), (0, 0))
def vectors_by_protocol(a, b):
    v = Vector(a, b)
    total = 0
    for part in v:
        total += part
    x, y = v
    return total, x, y, list(v), sum(v), max(v), tuple(reversed(v)), str(v), f"{v!r}"


@case((1, 2), (3, 4))
def sums_of_instances(a, b):
    total = sum([Vector(a, b), Vector(b, a), Vector(1, 1)])
    return total.x, total.y, total


@case((1, 2), (3, 1), (2, 2))
def instances_as_keys(a, b):
    d = {Vector(a, b): "ab", Vector(b, a): "ba"}
    d[Vector(a, b)] = d[Vector(a, b)] + "!"
    return len(d), d[Vector(a, b)], Vector(9, 9) in d, Vector(b, a) in {Vector(1, 2)}


@case((3, 1), (1, 3), (2, 2))
def sorted_instances(a, b):
    vs = sorted([Vector(a, b), Vector(b, a), Vector(2, 0)])
    first = min([Vector(a, b), Vector(b, a)])
    return [(v.x, v.y) for v in vs], first.x, max(vs, key=lambda v: v.y).y


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n


@case((3,), (0,), (5,))
def own_iterators(n):
    out = []
    for i in Countdown(n):
        out.append(i * 2)
    return out, list(Countdown(n)), sum(Countdown(n))


@case((3,), (1,), (5,))
def next_of_own_iterator(n):
    c = Countdown(n)
    first = next(c)
    return first, next(c, "end"), [x for x in c], next(c, None)


class Repeated:
    def __init__(self, items, times):
        self.items = items
        self.times = times

    def __iter__(self):
        return iter(self.items * self.times)


@case((1, 2), (5, 2), (5, 0), (3, 3))
def iter_method(a, times):
    r = Repeated([a, a + 1], times)
    return [x for x in r], len(list(r))


class Temperature:
    scale = "C"
    count = 0

    def __init__(self, degrees):
        self._degrees = degrees

    @property
    def fahrenheit(self):
        return self._degrees * 9 / 5 + 32

    @property
    def degrees(self):
        return self._degrees

    @degrees.setter
    def degrees(self, value):
        if value < -273.15:
            raise ValueError(f"{value} is below absolute zero")
        self._degrees = value

    @classmethod
    def freezing(cls):
        return cls(0.0)

    @staticmethod
    def average(a, b):
        return (a.degrees + b.degrees) / 2


@case((10.0,), (-5.5,), (0.0,), (-300.0,))
def properties(d):
    t = Temperature(1.0)
    t.degrees = d
    t.degrees += 1
    z = Temperature.freezing()
    return t.fahrenheit, z.degrees, Temperature.average(t, z), t.scale, type(t).__name__


class Meter:
    def __init__(self, level):
        self.level = level

    def move(self, by, *, times=1):
        self.level = self.level + by * times
        return self.level

    up = functools.partialmethod(move, 1)
    far = functools.partialmethod(move, 2, times=3)
    anyhow = functools.partialmethod(move)


@case((1,), (4,))
def partial_methods(n):
    meter = Meter(n)
    move = meter.far if n > 2 else meter.up
    move()
    return move(times=n), meter.anyhow(n), meter.far(), meter.level


class Sealed:
    """A descriptor that keeps what it has been told."""

    def __get__(self, holder, kind=None):
        return holder.told[-1]

    def __set__(self, holder, value):
        holder.told.append(value)

    def __delete__(self, holder):
        holder.told.append(-1)


class Drawer:
    seal = Sealed()

    def __init__(self, item):
        self.told = [0]
        self._item = item

    @property
    def item(self):
        return self._item

    @item.deleter
    def item(self):
        self.told.append(self._item)
        del self._item

    @property
    def fixed(self):
        return 1


class Guarded(Drawer):
    __slots__ = ("lid",)

    def __delattr__(self, name):
        self.told.append(name)
        object.__delattr__(self, name)


@case((1,), (2,), (3,), (4,), (5,))
def attributes_that_are_deleted(n):
    holder = Guarded(n) if n > 3 else Drawer(n)
    holder.seal = n
    try:
        if n > 1:
            del holder.seal
        if n > 2:
            delattr(holder, "item")
        if n == 4:
            del holder.lid
        elif n == 3:
            del holder.fixed
        elif n == 2:
            del holder.seals
    except AttributeError as error:
        holder.told.append(str(error))
    return str(holder.told), hasattr(holder, "item")


class Shape:
    sides = 0

    def area(self):
        raise NotImplementedError(type(self).__name__)

    def describe(self):
        return f"{type(self).__name__} of area {self.area()}"


class Square(Shape):
    sides = 4

    def __init__(self, side):
        super().__init__()
        self.side = side

    def area(self):
        return self.side**2


class Rect(Square):
    def __init__(self, side, other):
        super().__init__(side)
        self.other = other

    def area(self):
        return self.side * self.other

    def describe(self):
        return "Rect: " + super().describe()


class Blob(Shape):
    pass


@case((0, 2), (1, 3), (0, 5), (2, 1))
def polymorphism(kind, n):
    if kind == 0:
        s = Square(n)
    elif kind == 1:
        s = Rect(n, n + 1)
    else:
        s = Blob()
    return s.describe(), s.sides, isinstance(s, Square)


@case((Square(2),), (Rect(2, 3),), (Square(4),))
def foreign_dispatch(shape):
    return shape.area() * 2, shape.describe(), isinstance(shape, Rect), shape.sides


@case((Square(2), Rect(1, 2)), (Rect(2, 3), Square(1)), (Square(4), Square(5)))
def foreign_lists(a, b):
    shapes = [a, b]
    best = max(shapes, key=lambda s: s.area())
    return sum(s.area() for s in shapes), best is a, [type(s).__name__ for s in shapes]


@dataclass
class Item:
    name: str
    price: float
    tags: list = field(default_factory=list)
    count: int = 1

    @property
    def total(self):
        return self.price * self.count


@dataclass(frozen=True)
class Key:
    a: Any
    b: Any = 0


@dataclass(order=True)
class Ranked:
    score: Any
    name: str = "x"


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@case((1, 2.5), (3, 1.0))
def dataclasses(n, price):
    item = Item("thing", price, count=n)
    item.tags.append(n)
    other = replace(item, count=n + 1)
    return item.total, other.total, item.tags, other.tags is item.tags, item == other, str(item)


@case((1, 2), (2, 2), (1, 3))
def frozen_keys(a, b):
    seen_keys = {Key(a): 1, Key(b): 2}
    return (
        len(seen_keys),
        seen_keys[Key(a)],
        Key(a) == Key(b),
        Key(a, b),
        hash(Key(a)) == hash(Key(a)),
    )


@case((1, 2), (2, 1), (2, 2))
def ordered_dataclass(a, b):
    return (
        Ranked(a) < Ranked(b),
        max(Ranked(a, "a"), Ranked(b, "b")).name,
        sorted([Ranked(b), Ranked(a)]),
    )


@case((1,), (2,), (3,))
def enums(n):
    c = Color.RED if n == 1 else Color.GREEN
    level = Level(2 if n > 1 else 1)
    names = {Color.RED: "red", Color.GREEN: "green"}
    if c is Color.RED:
        k = 1
    elif c == Color.GREEN:
        k = 2
    return c, c.name, names[c], level > Level.LOW, level + 1, k, Color(1).name, Color["GREEN"].value


class Pair(NamedTuple):
    left: Any
    right: Any = 0

    def swapped(self):
        return Pair(self.right, self.left)

    @property
    def sum(self):
        return self.left + self.right


@case((1, 2), (3, 4))
def named_tuples(a, b):
    p = Pair(a, right=b)
    q = p.swapped()
    left, right = q
    r = p._replace(left=10 * a)
    return p, q.sum, left, right, r, p[0], p + q, p < q, p._asdict(), len(p), Pair(a), p == (a, b)


class Stack:
    def __init__(self):
        self.items = []

    def push(self, x):
        self.items.append(x)
        return self

    def pop(self):
        return self.items.pop()

    @property
    def empty(self):
        return not self.items


@case(([1, 2, 3],), ([],), ([4, 4],))
def stacks(xs):
    s = Stack()
    for x in xs:
        s.push(x).push(x * x)
    out = []
    while not s.empty:
        out.append(s.pop())
    return out


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@case((1,), (2,))
def slots(n):
    s = Slotted(n)
    s.b = s.a + 1
    return s.a, s.b, hasattr(s, "a"), getattr(s, "c", 0)


@case((1,), (2,))
def slots_unset(n):
    s = Slotted(n)
    return s.b


class Lazy:
    def __getattr__(self, name):
        if name.startswith("x"):
            return len(name)
        raise AttributeError(f"no {name}")


@case((1,), (2,))
def dynamic_attributes(n):
    z = Lazy()
    z.y = n
    return z.xyz, z.y, getattr(z, "q", None), hasattr(z, "xx"), z.nothing


@case((1,), (5,))
def attributes_by_name(n):
    v = Vector(n, 2)
    setattr(v, "z", n * 2)
    del v.y
    return getattr(v, "x"), hasattr(v, "y"), v.z, sorted(vars(v)), v.__dict__, v.__class__.__name__


@case((1,), (5,))
def missing_attribute(n):
    v = Vector(n, 2)
    if n > 3:
        return v.w
    return v.x


@case((1,), (5,))
def aliases_of_instances(n):
    a = Vector(n, 0)
    b = a
    b.x += 1
    holder = [a, b]
    holder[0].y = 7
    if n > 3:
        a.x = 100
    return a.x, b.x, b.y, a is b, holder[1] is a


@case((0,), (1,), (2,))
def classes_as_values(n):
    kind = [Square, Rect, Vector][n]
    made = kind(2) if n == 0 else kind(2, 3)
    return type(made).__name__, kind is Square, issubclass(kind, Shape)


class Registry:
    def __init__(self):
        self.handlers = {}

    def register(self, name, function):
        self.handlers[name] = function

    def run(self, name, *args, **kwargs):
        return self.handlers[name](*args, **kwargs)


@case(("add", 2), ("mul", 3), ("neg", 1), ("none", 1))
def registries(name, n):
    r = Registry()
    r.register("add", lambda a, b=1: a + b)
    r.register("mul", lambda a, b=2: a * b)
    r.register("neg", lambda a, **_: -a)
    return r.run(name, n, b=5)


@case((Vector(1, 2), 3), (Vector(4, 5), 1))
def foreign_operators(v, n):
    w = v * n
    return w.x, (v + w).y, abs(v), v == w, n in v, v(n), [p for p in v], len(v)


@case((4,), (7,))
def method_references(n):
    v = Vector(n, 1)
    f = v.__call__
    g = Vector.__abs__
    push = [].append
    push(n)
    return f(2), g(v), list(map(v.__getitem__, [0, 1]))
