"""Functions by the class of what they get (``singledispatch``), in programs of objects alone."""

import functools
from abc import ABCMeta, abstractmethod

import pytest
import torch

import autobatch
from autobatch.errors import AutobatchError
from tests.test_alone_fields import proved

NOTED = []
TREES = [[1, "ab", [2, (3, "c")]], "abc", 7, [[], ["x"]], (1, [2])]
X = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))


@functools.singledispatch
def size(x):
    raise TypeError(f"no size for {type(x).__name__}")


@size.register
def _(x: int):
    return 1


size.register(str, len)


@size.register(list)
@size.register(tuple)
def _(x):
    return sum(map(size, x))


@functools.singledispatch
def count(x):
    return 0


@count.register
def _(x: torch.Tensor):
    return x.numel() if x.sum() > 1.5 else -1


@count.register
def _(x: list):
    return sum(count(each) for each in x) + 1


@functools.singledispatch
def notes(x):
    return 1


@notes.register
def _(x: str):
    NOTED.append(x)
    return 2


class Hooked(metaclass=ABCMeta):
    @abstractmethod
    def hook(self):
        """Nothing."""

    @classmethod
    def __subclasshook__(cls, other):
        NOTED.append(other)
        return NotImplemented


@functools.singledispatch
def hooked(x):
    return 1


@hooked.register
def _(x: Hooked):
    return 2


def measured(tree):
    return size(tree), size([tree, tree])


def counted(tree, x):
    return count(tree), count([x, tree, [x]])


def noted(tree):
    return notes(tree)


def sees_classes(tree):
    return hooked(tree)


def handed(tree):
    return max(map(notes, [tree, tree]))


def outcome(function, *args, **options):
    found = autobatch.vmap(function, **options)(*args)
    return [tuple(part[i].item() for part in found) for i in range(5)]


@pytest.mark.parametrize("plain", ["auto", "never"])
def test_the_result_is_the_loops(plain):
    trees = autobatch.objects(TREES)
    for change in range(4):
        x = X + change / 4
        assert outcome(measured, trees, plain=plain) == list(map(measured, TREES))
        wanted = [counted(*each) for each in zip(TREES, x, strict=True)]
        assert outcome(counted, trees, x, plain=plain) == wanted


def test_a_program_that_calls_them_is_plain():
    trees = autobatch.objects(TREES)
    assert proved(measured, False, trees)
    assert proved(counted, True, trees, X)


def test_the_error_is_the_loops():
    with pytest.raises(TypeError, match="no size for dict") as found:
        autobatch.vmap(measured)(autobatch.objects([1, {}, 2.5]))
    assert str(found.value) == "no size for dict"


@pytest.mark.parametrize("function", [noted, handed, sees_classes])
def test_those_that_write_or_see_classes_are_not(function):
    assert not proved(function, False, autobatch.objects(TREES))


@pytest.mark.parametrize("function", [noted, handed])
def test_nothing_is_written(function):
    for _ in range(2):
        with pytest.raises(AutobatchError):
            autobatch.vmap(function)(autobatch.objects(["a", "b"]))
        assert not NOTED


def test_what_is_registered_later_is_seen():
    @functools.singledispatch
    def doubled(x):
        return x * 2

    def program(x):
        return doubled(x)

    batched, items = autobatch.vmap(program), autobatch.objects([1, 2])
    assert batched(items).tolist() == [2, 4]
    doubled.register(int, lambda x: x + 100)
    assert batched(items).tolist() == [101, 102]

    @doubled.register
    def _(x: bool):
        return 7

    assert batched(autobatch.objects([True, 2])).tolist() == [7, 102]
