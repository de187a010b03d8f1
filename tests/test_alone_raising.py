"""Texts of errors that programs raise, which may name tensors, where they may run plainly."""

import pytest
import torch

import autobatch
from tests.test_alone_fields import gives_up_texts, proved

pytestmark = pytest.mark.usefixtures("plain_is_better")

X = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))


class Unfit(ValueError):
    def __init__(self, text, place):
        super().__init__(text)
        self.place = place


class Machine:
    """Values by their names, some of them tensors."""

    def __init__(self, x):
        self.held = {"x": x, "kind": "row"}

    def __getitem__(self, name):
        if name not in self.held:
            raise KeyError(f"{name!r} is none of {sorted(self.held)}, {self.held['x']}")
        return self.held[name]


def looks_up(x):
    machine = Machine(x)
    if x.sum() > 2.5:
        machine["y"]
    if x[0] > 0.9:
        raise Unfit(f"{x[0]} of {x} is {'-'.join(sorted(machine.held))}", place=3)
    return machine["x"] * len(machine["kind"])


def catches(x):
    try:
        return looks_up(x)
    except KeyError as error:
        return x * len(str(error))


def notes(x):
    text = f"{x}"
    if x.sum() > 2.5:
        raise Unfit(text, 1)
    return x * len(text)


def test_a_text_that_is_raised_keeps_no_program_from_it():
    rows = X.clone().requires_grad_()
    assert proved(looks_up, True, rows)
    good = X * 0.5
    for change in range(4):
        rows = (good + change / 100).requires_grad_()
        with autobatch.counts() as counted:
            found = autobatch.vmap(looks_up)(rows)
        assert counted.plain == 5 or change < 1
        torch.testing.assert_close(found, torch.stack([looks_up(row) for row in rows]))


@pytest.mark.parametrize("place", [0, 3])
@pytest.mark.parametrize("scale", [1.0, 9.0])
def test_the_error_is_the_loops(place, scale):
    rows = X * 0.5
    rows[place] = torch.tensor([0.95, 0.1, 0.2]) * scale
    for _ in range(4):
        with pytest.raises((Unfit, KeyError)) as wanted:
            [looks_up(row) for row in rows]
        with pytest.raises(type(wanted.value)) as found:
            autobatch.vmap(looks_up)(rows)
        assert str(found.value) == str(wanted.value)
        assert vars(found.value).get("place") == vars(wanted.value).get("place")


def test_a_text_that_is_caught_or_kept_is_the_programs():
    """A thread that makes it is given up."""
    rows = X.clone().requires_grad_()
    for function in (catches, notes):
        assert gives_up_texts(function, rows)
        kept = autobatch.vmap(function, plain="never", on_error="isolate")(rows)
        for _ in range(4):
            found = autobatch.vmap(function, on_error="isolate")(rows)
            for one, other in zip(found, kept, strict=True):
                assert str(one.exception) == str(other.exception)
                if one.exception is None:
                    torch.testing.assert_close(one.value, other.value)
