"""Class patterns ask for attributes: what a property gives or does there is seen."""

from __future__ import annotations

import pytest
import torch

import autobatch

XS = torch.tensor([1.0, -2.0, 3.0])
KEPT: list[float] = [1.0]


class Holder:
    __match_args__ = ("kept",)

    @property
    def kept(self):
        return KEPT


class Writer:
    __match_args__ = ("number",)

    @property
    def number(self):
        KEPT.append(2.0)
        return 1.0


class Below(Writer):
    pass


class Says:
    @property
    def number(self):
        print("asked")
        return 1.0


def by_keyword(x):
    match Holder():
        case Holder(kept=found):
            found.append(x)


def by_place(x):
    match Holder():
        case Holder(found):
            found.append(x)


def writes_by_keyword(x):
    match Writer():
        case Writer(number=found):
            return x + found


def writes_by_place(x):
    match Below():
        case Below(found):
            return x + found


WRITING = [by_keyword, by_place, writes_by_keyword, writes_by_place]


OPTIONS = [{}, {"plain": "never"}, {"engine": "program_counter"}, {"engine": "sequential"}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("writes", WRITING)
def test_what_existed_before_is_not_written(writes, options):
    try:
        with pytest.raises(autobatch.AutobatchError):
            autobatch.vmap(writes, **options)(XS)
        assert KEPT == [1.0]
    finally:
        KEPT[:] = [1.0]


@pytest.mark.parametrize("plain", ["auto", "never"])
def test_a_property_is_asked_once(plain, capsys):
    def says(x):
        match Says():
            case Says(number=found):
                return x + found

    torch.testing.assert_close(autobatch.vmap(says, plain=plain)(XS), XS + 1)
    assert capsys.readouterr().out == "asked\n" * 3


@pytest.mark.parametrize("plain", ["auto", "never"])
def test_an_attribute_that_is_missing_is_no_match(plain):
    def missing(x):
        match Holder():
            case Holder(other=found):
                return found
            case Holder(kept=[first]):
                return x + first

    torch.testing.assert_close(autobatch.vmap(missing, plain=plain)(XS), XS + 1)
