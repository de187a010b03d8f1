"""``c.__dict__`` and ``vars(c)`` of instances that the program made."""

from __future__ import annotations

import copy
import json
import operator

import pytest
import torch

from tests.oracle import assert_matches_loop

NUMBERS = torch.tensor([3, 1, 2])


class C:
    pass


class D:
    k = 1

    def __init__(self, **kw):
        self.__dict__.update(kw)

    def get(self):
        return self.x


class S:
    __slots__ = ("x",)


class P:
    def __init__(self, x):
        self.__dict__["x"] = x

    @property
    def y(self):
        return self.x + 1

    def __setattr__(self, name, v):
        self.__dict__[name] = v * 2


class B:
    def __init__(self):
        self.a = 1


class Cached:
    def __init__(self, x):
        self._x = x

    @property
    def big(self):
        if "big_" not in self.__dict__:
            self.__dict__["big_"] = self._x * 10
        return self.__dict__["big_"]


def written_in_some(n):
    c = C()
    c.x = n
    d = c.__dict__
    if n > 1:
        d["x"] = n * 5
    return c.x


def seen_in_some(n):
    c = C()
    c.x = n
    d = c.__dict__
    if n > 1:
        c.x = n * 5
    return (d["x"], len(d))


def filled_by_keyword(n):
    return D(x=n, y=2).get()


def added_to_entry(n):
    c = D(x=n)
    c.__dict__["x"] += 1
    return c.x


def made_of_anothers(n):
    c = D(x=n, y=n + 1)
    e = D(**c.__dict__)
    e.x = 7
    return (c.x, e.x, e.y, c.__dict__ == e.__dict__)


def slots_have_none(n):
    c = S()
    c.x = n
    return c.__dict__


def setattr_by_namespace(n):
    p = P(n)
    p.x = n + 1
    p.z = n
    return (p.x, p.y, p.z)


def one_namespace(n):
    c = D(x=n)
    d = c.__dict__
    return d is c.__dict__


def namespace_returned(n):
    c = D(x=n)
    return c.__dict__


def namespace_read(n):
    c = D(x=n, y=n)
    return (
        {k: v + 1 for k, v in c.__dict__.items()},
        list(vars(c)),
        "x" in c.__dict__,
        "q" in c.__dict__,
        c.__dict__.get("z", n),
    )


def entries_doubled(n):
    c = D(x=n, y=n)
    for k in c.__dict__:
        c.__dict__[k] = c.__dict__[k] * 2
    return c.x + c.y


def attributes_come_by_the_way(n):
    c = D(x=n, y=n)
    for k in c.__dict__:
        setattr(c, k + "z", 1)
    return c.x + c.y


def replaced(n):
    c = D(x=n)
    c.__dict__ = {"x": n + 5}
    d = c.__dict__
    c.x = c.x + 1
    return d["x"]


def replaced_by_a_known_dict(n):
    c = D(x=n)
    d = {"x": n + 5}
    c.__dict__ = d
    c.x = c.x + 1
    return d["x"]


def class_replaced(n):
    c = C()
    c.x = n
    c.__class__ = D
    return c.get()


def copies_are_copies(n):
    c = D(x=n)
    d = dict(c.__dict__)
    d["x"] = n + 9
    e = c.__dict__.copy()
    e["x"] = 0
    return c.x


def by_attrgetter(n):
    c = D(x=n)
    f = operator.attrgetter("__dict__")
    f(c)["x"] = n + 9
    return c.x


def method_kept(n):
    c = D(x=n)
    f = c.__dict__.get
    c.x = n + 9
    return f("x")


def kept_when_first_asked(n):
    c = Cached(n)
    return c.big + c.big


def kept_in_some(n):
    c = Cached(n)
    if n > 1:
        n = c.big
    return n + c.big


def in_a_loop(n):
    c = D(x=n)
    t = 0
    for _i in range(n):
        c.__dict__["x"] = c.x + 1
        t = t + c.x
    return (t, c.x)


def deep_copied(n):
    c = D(x=n)
    d = c.__dict__
    e = copy.deepcopy(c)
    d["x"] = n + 1
    return (e.x, c.x)


def as_text(n):
    c = D(x=n.item())
    return (json.dumps(c.__dict__), str(c.__dict__), repr(vars(c)))


def in_a_list(n):
    c = D(x=n)
    made = [c.__dict__]
    made[0]["x"] = n + 4
    return c.x


def handed_on(n):
    c = D(x=n)

    def set(d):
        d["x"] = n + 8

    set(c.__dict__)
    return c.x


def what_it_is(n):
    c = D(x=n)
    isinstance(c.__dict__, dict)
    assert type(c.__dict__) is dict
    return (bool(c.__dict__), len(vars(c)), type(c.__dict__).__name__)


def by_vars(n):
    c = D(x=n)
    vars(c)["x"] = n + 5
    vars(c).update({"x": n + 6})
    return c.x


def own_names(n):
    c = D(x=n)
    d = c.__dict__
    d[str(n.item())] = 1
    return (len(d), c.x, sorted(d))


def in_a_try(n):
    c = D(x=n)
    d = c.__dict__
    try:
        d["y"] = n
        d["z"]
    except KeyError:
        d["w"] = n + 1
    return (c.y, c.w)


def united(n):
    c = D(x=n)
    return c.__dict__ | {"z": 1}


def of_the_class(n):
    c = D(x=n)
    return (D.__dict__["k"], type(c).__dict__["k"])


def name_deleted(n):
    c = D(x=n)
    d = c.__dict__
    del d
    return c.x


def unpacked(n):
    c = D(x=n)
    (k,) = c.__dict__
    return k


def deleted(n):
    c = D(x=n)
    del c.__dict__
    return hasattr(c, "x")


def by_setitem_method(n):
    c = C()
    c.x = 0
    c.__dict__.__setitem__("x", n)
    return c.x


def by_update(n):
    c = C()
    c.x = 0
    vars(c).update(x=n)
    return c.x


def by_item(n):
    c = C()
    c.x = 0
    c.__dict__["x"] = n
    return c.x


def by_a_name(n):
    c = C()
    c.x = 0
    d = c.__dict__
    d["x"] = n
    return c.x


def seen(n):
    c = C()
    c.x = 0
    d = vars(c)
    c.x = n
    return d["x"]


def cleared(n):
    c = C()
    c.x = 0
    vars(c).clear()
    return hasattr(c, "x")


def entry_deleted(n):
    c = C()
    c.x = n
    del c.__dict__["x"]
    return hasattr(c, "x")


def popped(n):
    c = C()
    c.x = n
    c.__dict__.pop("x")
    return hasattr(c, "x")


def united_in_place(n):
    c = C()
    c.x = n
    c.__dict__ |= {"x": n + 1}
    return c.x


def another_dict(n):
    c = C()
    c.x = n
    c.__dict__ = {"x": n + 1}
    return c.x


def default_set(n):
    c = C()
    c.x = n
    c.__dict__.setdefault("y", n + 1)
    return c.y


def method_by_a_name(n):
    c = C()
    c.x = n
    f = c.__dict__.update
    f(x=n + 1)
    return c.x


def by_operator(n):
    c = C()
    c.x = n
    operator.setitem(c.__dict__, "x", n + 1)
    dict.__setitem__(vars(c), "y", n + 5)
    return c.x + c.y


def by_object(n):
    c = C()
    c.x = n
    object.__setattr__(c, "x", n + 1)
    return c.x


def by_getattr(n):
    c = C()
    c.x = n
    c.__getattribute__("__dict__")["x"] = n + 1
    c.__dict__["x"] = n + 3
    return c.x


def empty(n):
    c = C()
    if n > 2:
        c.x = n
    return bool(c.__dict__), not vars(c), 1 if vars(c) else 2


PROGRAMS = (
    empty,
    written_in_some,
    seen_in_some,
    filled_by_keyword,
    added_to_entry,
    made_of_anothers,
    slots_have_none,
    setattr_by_namespace,
    one_namespace,
    namespace_returned,
    namespace_read,
    entries_doubled,
    attributes_come_by_the_way,
    replaced,
    replaced_by_a_known_dict,
    class_replaced,
    copies_are_copies,
    by_attrgetter,
    method_kept,
    kept_when_first_asked,
    kept_in_some,
    in_a_loop,
    deep_copied,
    as_text,
    in_a_list,
    handed_on,
    what_it_is,
    by_vars,
    own_names,
    in_a_try,
    united,
    of_the_class,
    name_deleted,
    unpacked,
    deleted,
    by_setitem_method,
    by_update,
    by_item,
    by_a_name,
    seen,
    cleared,
    entry_deleted,
    popped,
    united_in_place,
    another_dict,
    default_set,
    method_by_a_name,
    by_operator,
    by_object,
    by_getattr,
)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("program", PROGRAMS)
def test_is_what_it_is_for_one_example(program):
    assert_matches_loop(program, (NUMBERS,), batch_sizes=(1, 3))
