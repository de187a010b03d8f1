"""Dicts and lists that change while they are gone through, and views of dicts."""

from __future__ import annotations

import pytest
import torch

import autobatch
from tests.oracle import assert_matches_loop

NUMBERS = torch.tensor([3, 1, 2, 3, 1])
DICTS = [{1: 2}, {3: 4, 5: 6}, {7: 8}]


def dict_changed(n):
    d = {1: 2, 3: 4}
    for k in d:
        d[k + 10] = 1
    return n


def dict_changed_some(n):
    d = {1: 2, 3: 4}
    t = 0
    for k in d:
        t += k
        if n > 2:
            d[k + 10] = 1
    return t


def dict_del(n):
    d = {1: 2, 3: 4}
    for k in d:
        del d[k]
    return n


def dict_items(n):
    d = {1: 2, 3: 4}
    for k, _v in d.items():
        d[k + 7] = n
    return n


def dict_values(n):
    d = {1: 2, 3: 4}
    for v in d.values():
        d[v + 7] = n
    return n


def dict_last(n):
    d = {1: 2, 3: 4}
    for v in d:
        if v == 3:
            d[5] = n
    return n


def dict_last_break(n):
    d = {1: 2, 3: 4}
    for v in d:
        if v == 3:
            d[5] = n
            break
    return len(d)


def set_changed(n):
    d = {1, 3}
    for k in d:
        d.add(k + 10)
    return n


def set_discard(n):
    d = {1, 3}
    for k in d:
        d.discard(k)
    return n


def list_grow(n):
    a = [1, 2, 3]
    out = []
    for v in a:
        out.append(v)
        if len(a) < 7:
            a.append(v + 1)
    return out


def list_grow_some(n):
    a = [1, 2, 3]
    out = []
    for v in a:
        out.append(v)
        if len(a) < 5 + n:
            a.append(v + 1)
    return str(out)


def list_remove(n):
    a = [1, 2, 3, 4]
    out = []
    for v in a:
        out.append(v)
        a.remove(v)
    return out


def list_enum(n):
    a = [1, 2, 3, 4]
    out = []
    for i, v in enumerate(a):
        out.append(v + i)
        if i < 5:
            a.insert(0, v)
    return out


def list_rev(n):
    a = [1, 2, 3, 4]
    out = []
    for v in reversed(a):
        out.append(v)
        if len(a) > 1:
            a.pop(0)
    return out


def list_zip(n):
    a = [1, 2, 3, 4]
    out = []
    for v, w in zip(a, range(20), strict=False):
        out.append(v * w)
        if w < 4:
            a.append(w)
    return out


def list_clear(n):
    a = [1, 2, 3, 4]
    out = []
    for v in a:
        out.append(v)
        a.clear()
    return out


def dict_comp(n):
    d = {1: 2, 3: 4}
    return [d.setdefault(k + 20, 1) for k in d]


def dict_enum(n):
    d = {1: 2, 3: 4}
    for _i, k in enumerate(d):
        d[k + 20] = 1
    return n


def dict_zip(n):
    d = {1: 2, 3: 4}
    for _i, k in zip(range(9), d, strict=False):
        d[k + 20] = 1
    return n


def dict_rev(n):
    d = {1: 2, 3: 4}
    for k in reversed(d):
        d[k + 20] = 1
    return n


def dict_iter(n):
    d = {1: 2, 3: 4}
    it = iter(d)
    next(it)
    d[9] = 1
    return next(it)


def dict_gen(n):
    d = {1: 2, 3: 4}
    return sum(d.pop(k) for k in d)


def dict_try(n):
    d = {1: 2, 3: 4}
    try:
        for k in d:
            d[k + int(n)] = 1
    except RuntimeError as e:
        return str(e)
    return str(d)


def list_sort_key(n):
    a = [3, 1, 2]
    try:
        a.sort(key=lambda v: a.append(v) or v)
    except ValueError as e:
        return str(e)
    return a


def keys_show_what_came(n):
    d = {1: n, 2: n + 1}
    ks = d.keys()
    d[3] = n
    return len(ks), 3 in ks, list(ks)


def items_show_what_came(n):
    d = {1: n, 2: n + 1}
    ks = d.items()
    d[3] = n
    return sum(a for a, b in ks)


def views_as_text(n):
    d = {1: 2, 2: 3}
    return str(d.keys()) + str(d.values()) + repr(d.items())


def views_as_sets(n):
    d = {1: 2, 2: 3}
    return d.keys() == {1, 2}, d.keys() & {1}, (d.items() | set())


def keys_have_no_places(n):
    d = {1: 2, 2: 3}
    return d.keys()[0]


def types_of_views(n):
    d = {1: 2, 2: 3}
    return isinstance(d.keys(), tuple), type(d.values()).__name__


def values_reduced(n):
    d = {1: 2, 2: 3}
    v = d.values()
    d[1] = n
    if n > 2:
        d[2] = 7
    return sum(v), max(v), sorted(v)


def values_written(n):
    d = {1: 2, 2: 3}
    for k, v in d.items():
        d[k] = v * n
    return list(d.values())


def keys_added_to_a_copy(n):
    d = {1: 2, 2: 3}
    for k, v in list(d.items()):
        d[k + 5] = v * n
    return len(d)


def items_counted(n):
    d = {"a": n, "b": n * 2}
    t = 0
    for i, (_k, v) in enumerate(d.items()):
        if v > 2:
            continue
        t = t + v * i
    return t


def items_one_by_one(n):
    d = {"a": n, "b": n * 2}
    it = iter(d.items())
    t = 0
    while True:
        x = next(it, None)
        if x is None:
            break
        t = t + x[1]
        if n > 2:
            t = t + 1
    return t


def items_left_early(n):
    d = {"a": n, "b": n * 2, "c": n}
    t = 0
    for k, v in d.items():
        if v > 3:
            break
        t = t + v
        d[k] = t
    return t, d["a"]


def views_unpacked(n):
    d = {"a": n, "b": n * 2, "c": n}
    a, b, c = d.values()
    (k, v), *_r = d.items()
    return a + b + c + v, k


def views_splatted(n):
    d = {"a": n, "b": n * 2, "c": n}
    return {**d, "z": n}, dict(d.items()), [*d.keys(), *d.values()]


def own_keys(n):
    d = {n.item(): 1, 5: 2}
    t = 0
    for k, v in d.items():
        t += k * v
    for k in d:
        d[k] = t
    return t + sum(d.values())


def own_keys_added(n):
    d = {n.item(): 1, 5: 2}
    for k in d:
        d[k + 20] = 1
    return 1


def own_keys_come(n):
    d = {1: 1, 2: 2}
    for _k in d:
        if n > 1:
            d[n.item() + 20] = 1
    return 1


def same_keys_written(n):
    d = {1: 1, 2: 2}
    for _k in d:
        d[(n * 0 + 1).item()] = 5
    return d[1] + d[2]


def own_keys_written(n):
    d = {1: 1, 2: 2}
    t = 0
    for k in d:
        d[(n % 2).item() + 1] = 5
        t = t + k
    return d[1] + d[2], t


def reversed_shrinks_in_some(n):
    a = [1, 2, 3]
    out = []
    for v in reversed(a):
        out.append(v)
        if n > 1 and len(a) > 1:
            a.pop()
    return str(out)


def reversed_grows(n):
    a = [1, 2, 3]
    out = []
    for _i, v in enumerate(reversed(a)):
        out.append(v)
        a.append(n)
        a[0] = 9
    return str(len(a)), str(out[2])


def reversed_of_own_length(n):
    a = [1, 2, 3][:n]
    out = 0
    for v in reversed(a):
        out = out + v * 2 + len(a)
        a.append(4)
    return out


def lists_in_values(n):
    d = {1: [1], 2: [2]}
    for own in d.values():
        own.append(n)
    return d


def dict_as_sequence(n):
    d = {1: 1, 2: 2}
    return (
        tuple(d),
        [*d],
        (*d,),
        max(d),
        len(d),
        sum(d),
        2 in d.values(),
        (1, 1) in d.items(),
        n in d.values(),
    )


def dict_starred(n):
    d = {1: 1, 2: 2}

    def g(*a):
        return a

    return g(*d), g(*d.values())


def view_returned(n):
    d = {1: 1, 2: 2}
    return d.keys()


def keys_of_two(n):
    d = {(1, 2): n, (3, 4): n + 1}
    t = 0
    for (a, b), v in d.items():
        t = t + a * b * v
    return t


def values_stacked(n):
    d = {}
    for i in range(3):
        d[i] = n * i
    return torch.stack(list(d.values())), list(d), {k: v + 1 for k, v in d.items()}


def first_key_popped(n):
    d = {1: n, 2: n}
    while d:
        k = next(iter(d))
        d.pop(k)
        n = n + 1
    return n


def caught_in_some(n):
    d = {1: n, 2: n}
    try:
        for _k in d.values():
            if n > 2:
                d[7] = 1
    except RuntimeError:
        n = n + 100
    return n


def views_reversed(n):
    d = {1: n, 2: n}
    return (
        [a + b for a, b in zip(d.values(), reversed(d.values()), strict=False)],
        list(reversed(d)),
        list(reversed(d.items())),
    )


def reversed_after_pops(n):
    a = [1, 2, 3]
    r = reversed(a)
    x = next(r)
    a.pop()
    if n > 1:
        a.pop()
    return str([x, *r])


def keys_added(d):
    t = 0
    for k in d:
        d[k + 7] = 1
    return t


def values_replaced(d):
    t = 0
    for k, v in d.items():
        d[k] = 5
        t += v
    return t + sum(d.values())


def key_seen(d):
    k = d.keys()
    d["z"] = 3
    return len(k)


def step(it, found):
    try:
        found.append(next(it))
    except (RuntimeError, StopIteration) as error:
        found.append(type(error).__name__)


def stays_changed(n):
    d = {i: i for i in range(4)}
    it, found = iter(d), []
    for i in range(5):
        if i == int(n):
            d[10] = 1
        step(it, found)
        if i == int(n) + 1:
            del d[10]
    return str(found)


def stays_changed_in_a_for(n):
    d = {i: i for i in range(4)}
    it = zip(d.items(), range(9), strict=False)
    total = 0
    for _ in range(3):
        try:
            for (key, _), j in it:
                total += key * 10 + j
                if key == n:
                    d[9] = 1
        except RuntimeError:
            total += 1000
            d.pop(9, None)
    return total


def changed_list_of_it(n):
    d = {i: i for i in range(4)}
    it = iter(d.values())
    d[8] = 1
    found = []
    for _ in range(int(n)):
        try:
            found.append(len(list(it)))
        except RuntimeError:
            found.append(-1)
        d.pop(8, None)
    return str(found)


def list_ends_for_good(n):
    xs, found = [1, 2], []
    plain, down, numbered = iter(xs), reversed(xs), enumerate(xs)
    for i in range(5):
        if i == int(n):
            xs.append(7)
        step(plain, found)
        step(down, found)
        step(numbered, found)
    return str(found)


def dict_ends_for_good(n):
    d, found = {1: 1, 2: 2}, []
    it = iter(d)
    for i in range(5):
        if i == int(n):
            d[9] = 7
        step(it, found)
    return str(found)


def zipped_with_one_that_ends(n):
    longer, shorter = iter([1, 2, 3]), iter([n] * int(n))
    both, found = zip(longer, shorter, strict=False), []
    for _ in range(4):
        try:
            found.append(next(both)[0])
        except StopIteration:
            found.append(next(longer, -5))
    return str(found)


PROGRAMS = (
    dict_changed,
    dict_changed_some,
    dict_del,
    dict_items,
    dict_values,
    dict_last,
    dict_last_break,
    set_changed,
    set_discard,
    list_grow,
    list_grow_some,
    list_remove,
    list_enum,
    list_rev,
    list_zip,
    list_clear,
    dict_comp,
    dict_enum,
    dict_zip,
    dict_rev,
    dict_iter,
    dict_gen,
    dict_try,
    list_sort_key,
    keys_show_what_came,
    items_show_what_came,
    views_as_text,
    views_as_sets,
    keys_have_no_places,
    types_of_views,
    values_reduced,
    values_written,
    keys_added_to_a_copy,
    items_counted,
    items_one_by_one,
    items_left_early,
    views_unpacked,
    views_splatted,
    own_keys,
    own_keys_added,
    own_keys_come,
    same_keys_written,
    own_keys_written,
    reversed_shrinks_in_some,
    reversed_grows,
    reversed_of_own_length,
    lists_in_values,
    dict_as_sequence,
    dict_starred,
    view_returned,
    keys_of_two,
    values_stacked,
    first_key_popped,
    caught_in_some,
    views_reversed,
    reversed_after_pops,
    stays_changed,
    stays_changed_in_a_for,
    changed_list_of_it,
    list_ends_for_good,
    dict_ends_for_good,
    zipped_with_one_that_ends,
)


def list_grown_after_the_end(n):
    xs = [1, 2]
    numbered, plain = enumerate(xs), iter(xs)
    for _ in plain:
        pass
    for _ in numbered:
        pass
    xs.append(n)
    return next(plain, -1), next(numbered, (0, 0))[0]


def list_grown_after_the_end_of_some(n):
    xs = [1, 2, 3]
    it = iter(xs)
    next(it)
    if n > 1:
        for _ in it:
            pass
    xs.append(n)
    xs.append(n)
    return sum(it)


def reversed_list_grown_after_the_end(n):
    xs = [1, 2, 3, 4, 5, 6]
    it = reversed(xs)
    if n > 2:
        next(it)
    while len(xs) > 3:
        xs.pop()
    a = next(it, -1)
    xs.extend([7, 8, 9, 10])
    return a, next(it, -1)


def dict_grown_after_the_end(n):
    d = {1: 1, 2: 2}
    it, items = iter(d), iter(d.items())
    t = sum(it)
    if n > 1:
        next(items)
    first = next(items), next(items, (0, 0))
    d[3] = n
    for _ in it:
        t += 100
    return t, first


def dict_grown_after_the_end_of_some(n):
    d = {1: 1, 2: 2, 3: 3}
    it = iter(d)
    if n > 1:
        next(it)
    next(it)
    next(it)
    last = next(it, -1)
    if n > 1:
        d[8] = n
    return last, next(it, -5)


def empty_views(n):
    d = {}
    if n > 2:
        d[1] = n
    return bool(d.keys()), 1 if d.values() else 2, not d.items()


ENDED = (
    list_grown_after_the_end,
    list_grown_after_the_end_of_some,
    reversed_list_grown_after_the_end,
    dict_grown_after_the_end,
    dict_grown_after_the_end_of_some,
    empty_views,
)
OF_DICTS = (keys_added, values_replaced, key_seen)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("program", (*PROGRAMS, *ENDED))
def test_is_gone_through_as_by_the_loop(program):
    assert_matches_loop(program, (NUMBERS,), batch_sizes=(1, 5))


@pytest.mark.parametrize("program", OF_DICTS)
def test_dicts_of_the_examples_are_gone_through_as_by_the_loop(program):
    assert_matches_loop(program, (autobatch.objects(DICTS),))


def with_other_keys(n):
    d = {1: 2, 3: 4}
    for key in d:
        del d[key]
        d[key + 10] = n
    return n


@pytest.mark.parametrize("executor", ["vmap", "traced"])
def test_other_keys_by_the_way_are_refused_with_advice(executor):
    with pytest.raises(autobatch.UnsupportedError, match="other keys while") as caught:
        autobatch.vmap(with_other_keys, executor=executor)(NUMBERS)
    assert "for key in list(d)" in str(caught.value)
    assert "for key in d:" in str(caught.value)
