"""``c.__dict__`` of an instance that the program made: its attributes, by name.

It is a container of the instance's cell, so what is written through either is seen by both, however
threads part and meet. In: the value of such a cell, or any other. Out: a dict of the very cells
that the instance has, for what reads or writes a dict of cells.
"""

from __future__ import annotations

from autobatch.batching.kinds import is_instance, named_cells
from autobatch.batching.trace import Untraceable
from autobatch.batching.trace.recorder import is_recording
from autobatch.values.cells import NAMESPACE, Cell, Container, Value, read


def of(cell: Cell) -> Cell:
    """``c.__dict__``."""
    refuse_recording()
    return Cell(Container(NAMESPACE, [cell]))


def opened(value: Value) -> Value:
    """A namespace as a dict; any other value, and one of objects by thread, as it is."""
    if type(value) is not Container or value.type is not NAMESPACE:
        return value
    refuse_recording()
    (owner,) = value.children()
    own = read(owner)
    return Container(dict, named_cells(own)) if is_instance(own) else value


def refuse_recording() -> None:
    if is_recording():
        raise Untraceable("it uses the __dict__ of an instance")
