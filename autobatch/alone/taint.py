"""What the values of a program may share with what existed before it.

A *share* is a set of bits: ``OUTER_FLAT`` of something that existed and that can be written to,
``OUTER_DEEP`` of something within which there is more of that kind; ``OUTER_TABLE`` of a dict whose
items are of the first kind at most, or an iterator over it, and ``OUTER_ROWS`` of such a list: they
go for ``OUTER_DEEP`` but where one item is taken out; ``OWN_FLAT`` and ``OWN_DEEP``
the same of containers among the arguments, which a thread may write to a copy of; ``CODE`` of
functions, classes and members of enumerations, whose attributes anybody may see, and of what holds
some; ``TENSOR`` of tensors, that may be read to the host and nothing else, unless the program
``computes`` (see ``computing``), and ``FOREIGN`` of those among them that existed before; ``ARRAY``
of numpy's arrays that existed before, of views of them and of numbers taken from them. Numbers,
strings and what else the program makes have none. ``Shares`` keeps them for the variables of all
functions of a program, without regard to order. What the program puts into an attribute comes out
where that name is asked for (``fields``), what may be in any attribute where any is (``loose``);
all that is in containers is kept as one (``heap``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from autobatch.alone.kinds import NotAlone
from autobatch.ir.program import Function, Var

Share = int
NONE, OUTER_FLAT, OUTER_DEEP, OWN_FLAT, OWN_DEEP, CODE, TENSOR, FOREIGN = 0, 1, 2, 4, 8, 16, 32, 64
ARRAY: Share = 128
OUTER_TABLE, OUTER_ROWS = 256, 512
NESTED = OUTER_TABLE | OUTER_ROWS
OUTER = OUTER_FLAT | NESTED | OUTER_DEEP
OWN = OWN_FLAT | OWN_DEEP
TENSORS = TENSOR | FOREIGN
IN_DEEP = OUTER_DEEP | OWN_DEEP | CODE | TENSORS | ARRAY
OUTERS = (NONE, OUTER_FLAT, OUTER_TABLE, OUTER_ROWS, OUTER_DEEP)
OWNS = (NONE, OWN_FLAT, OWN_DEEP, OWN_DEEP, OWN_DEEP)
"""By nature (see ``contents``)."""


@dataclass(slots=True, eq=False, repr=False)
class Unit:
    """One function: what its variables share, and what it returns; ``source`` is it as lowered."""

    function: Function
    source: Function
    of: dict[Var, Share] = field(default_factory=dict)
    returned: Share = NONE
    escapes: bool = False
    """It may be called with anything."""
    is_bound: bool = False
    """So it may, but as a method of an instance, which no tensor is."""
    is_built_by: bool = False
    """It may be called with whatever a call gets, for an instance that is new."""
    is_free: bool = False
    """It is called as a function, too, where it is a method."""
    is_of_members: bool = False
    """It is a method of an enumeration, whose members all existed before."""
    of_existing: bool | None = None
    """Of a class's method: whether instances that have it existed before; None of others."""
    is_kept: bool = False
    """What it returns is kept for all calls."""
    property_of: str = ""
    """It is called where this attribute is asked for, or assigned, and gives what that is."""
    numbers: frozenset[Var] | None = None
    """Its variables that are numbers, once that has been asked."""
    is_handed_on: bool = False
    """It is a value, and may be called with whatever a call gets."""
    is_first: bool = False
    """The program begins with it, and nothing in it calls it."""
    given_back: Share = NONE
    """What is in the displays that it gives back (see ``displayed``)."""
    yields: bool = False
    """It gives a generator, which is the thread's own; what it yields is in containers."""
    displays: frozenset[int] | None = None
    """The operations that make these, once that has been asked."""

    def join(self, names: Iterable[Var]) -> Share:
        found = NONE
        for name in names:
            found |= self.of.get(name, NONE)
        return found


@dataclass(slots=True, eq=False, repr=False)
class Shares:
    """``changed`` tells whether anything has been added since it was last cleared.

    ``writes_own``: whether the program may write to containers among its arguments. ``computes``:
    tensors that are not ``FOREIGN`` are the thread's own.
    """

    computes: bool = False
    heap: Share = NONE
    loose: Share = NONE
    """What may be in any attribute of what the program makes."""
    anything: Share = NONE
    boxed: Share = NONE
    """What captured variables hold."""
    given: Share = NONE
    """What calls get that call functions in their turn."""
    hidden: Share = NONE
    """What functions give that Python calls by itself."""
    lent: Share = NONE
    """What Python's classes give of what existed before: an enumeration's members."""
    held: Share = NONE
    """What existed before holds, modules say; it comes out of what existed before alone."""
    leading: set[str] | None = None
    """The attributes by which instances that existed before have more than numbers and texts; None
    where not all of these are known.
    """
    chained: Share = NONE
    """The dicts of each ``ChainMap``, but for the first, which is what it shares itself."""
    fields: dict[str, Share] = field(default_factory=dict)
    """What the program puts into attributes, by name; nothing else leads there, either."""
    is_pooled: bool = False
    """Something goes through all attributes that objects have."""
    has_instances: bool = False
    """Instances of the user's classes existed before, some of which may be a method's first
    argument: others are the program's own.
    """
    has_any_instances: bool = False
    """They may be of any class."""
    members: dict[str, Share] = field(default_factory=dict)
    """What classes have that is data, by name: nothing else leads there but to ask for the name."""
    writes_own: bool = False
    slices: bool = False
    """A place in a list may be a slice, made by a call."""
    writes_by_values: bool = False
    """A method that writes to a container of the program's own is a value."""
    changed: bool = False

    def add(self, unit: Unit, names: Iterable[Var], share: Share) -> None:
        for name in names:
            before = unit.of.get(name, NONE)
            if before | share != before:
                unit.of[name] = before | share
                self.changed = True
        self.met(share)

    def gives(self, unit: Unit, share: Share) -> None:
        """A function returns something."""
        if unit.returned | share != unit.returned:
            unit.returned |= share
            self.changed = True
        called = unit.escapes or unit.is_bound or unit.is_handed_on
        if called and self.hidden | unit.returned != self.hidden:
            self.hidden |= unit.returned
            self.changed = True

    def gives_within(self, unit: Unit, share: Share) -> None:
        """A function returns something within a display, which the program does not see again."""
        unit.given_back |= share
        self.met(share)

    def met(self, share: Share) -> None:
        if self.anything | share != self.anything:
            self.anything |= share
            self.changed = True

    def contain(self, share: Share) -> None:
        """Something is put into a container."""
        if self.heap | share != self.heap:
            self.heap |= share
            self.changed = True
        self.met(share)

    def store(self, share: Share) -> None:
        """Something is put into something: a container, or some attribute."""
        self.contain(share)
        if self.loose | share != self.loose:
            self.loose |= share
            self.changed = True

    def has(self, name: str, share: Share) -> None:
        """A class has something by a name; tensors may be anywhere."""
        if share & TENSORS:
            self.store(share)
        else:
            self.named(self.members, name, share)

    def put(self, name: str, share: Share) -> None:
        """Something is put into an attribute."""
        self.named(self.fields, name, share)
        if self.is_pooled:
            self.contain(share)

    def named(self, table: dict[str, Share], name: str, share: Share) -> None:
        before = table.get(name, NONE)
        if before | share != before:
            table[name] = before | share
            self.changed = True
        self.met(share)

    def hand_out(self, name: str) -> None:
        """What objects and classes have by a name is put into a container."""
        self.contain(self.of_name(name) | self.loose)

    def of_name(self, name: str) -> Share:
        return self.members.get(name, NONE) | self.fields.get(name, NONE)

    def pool(self) -> None:
        """What objects have by any name, now or later, may be put into a container."""
        self.is_pooled = True
        for share in list(self.fields.values()):
            self.contain(share)

    def kept(self) -> Share:
        """All that may be within what the program gives back."""
        found = self.heap | self.loose | self.held | self.chained
        for share in self.fields.values():
            found |= share
        return found

    def box(self, share: Share) -> None:
        """Something is put into a captured variable."""
        if self.boxed | share != self.boxed:
            self.boxed |= share
            self.changed = True
        self.met(share)

    def give(self, share: Share) -> None:
        """A call gets something, which it may hand to a function."""
        share |= self.within(share)
        if self.writes_by_values:
            self.reach(share)
        if self.given | share != self.given:
            self.given |= share
            self.changed = True

    def lend_writing(self, share: Share) -> Share:
        """A method that writes to what has the share ``share`` is a value."""
        self.write(share)
        if not self.writes_by_values:
            self.writes_by_values = self.changed = True
        return share | self.within(share)

    def reach(self, share: Share) -> None:
        """Such a method may get something, and puts it, or what is in it, into its container.

        Of a class (``list.append``) it would write to that.
        """
        self.write(share & ~TENSORS)
        self.contain(share | self.within(share))

    def enter(self, unit: Unit) -> None:
        """What the parameters of a function may be that is called from nowhere in sight."""
        params = [param.name for param in unit.function.params]
        if unit.escapes:
            self.add(unit, params, self.anything)
        elif unit.is_bound:
            self.add(unit, params[:1], self.instance(unit, self.anything & ~TENSORS))
            self.add(unit, params[1:], self.anything)
        elif unit.property_of:
            self.add(unit, params[:1], self.instance(unit, self.anything & ~TENSORS))
            put = self.fields.get(unit.property_of, NONE) | self.loose
            self.add(unit, params[1:], put)
        elif unit.is_built_by:
            self.add(unit, params[1:], self.given)
        elif unit.is_handed_on:
            self.add(unit, params, self.given)

    def slices_are_made(self) -> None:
        if not self.slices:
            self.slices = self.changed = True

    def lend(self, share: Share) -> None:
        """A class that is a value may give something that existed before."""
        if self.lent | share != self.lent:
            self.lent |= share
            self.changed = True
        self.met(share)

    def instance(self, unit: Unit, share: Share) -> Share:
        """What the instance that a method gets may be, of what has the share ``share``."""
        existed = self.has_instances if unit.of_existing is None else unit.of_existing
        may_be = existed or self.has_any_instances or unit.is_of_members
        return share if may_be else NONE

    def instances_existed(self, of_any: bool = False) -> None:
        """``of_any``: of classes that cannot be told."""
        self.changed |= not self.has_instances or (of_any and not self.has_any_instances)
        self.has_instances = True
        self.has_any_instances |= of_any

    def lead_by(self, names: set[str]) -> None:
        """Instances that existed before have more than numbers and texts by these names."""
        if self.leading is not None and not names <= self.leading:
            self.leading |= names
            self.changed = True

    def hold(self, share: Share) -> None:
        """Something that existed before, and is known as such, holds something."""
        if self.held | share != self.held:
            self.held |= share
            self.changed = True
        self.met(share)

    def chain(self, share: Share) -> None:
        """A ``ChainMap`` is made of dicts."""
        self.contain(deep(share))
        if self.chained | share != self.chained:
            self.chained |= share
            self.changed = True
        self.met(share)

    def of_chain(self, share: Share, name: str) -> Share:
        """What a ``ChainMap`` gives by a name that leads to its dicts: a list, or a part."""
        found = share | self.chained
        if name == "maps":
            found |= (OUTER_DEEP if found & OUTER else NONE) | (OWN_DEEP if found & OWN else NONE)
        return found

    def within(self, share: Share) -> Share:
        """What may come out of a container."""
        return self.inner(share) | self.heap

    def inner(self, share: Share) -> Share:
        """What may come out of something that existed before, or out of a method of the user's."""
        held = self.held if share & OUTER else NONE
        return deep(share) | self.hidden | held

    def item(self, share: Share) -> Share:
        """What may come out of a container as one of its items."""
        if self.slices:
            return self.within(share)
        flat = OUTER_FLAT if share & NESTED else NONE
        return self.within(share & ~NESTED) | flat

    def following(self, share: Share) -> Share:
        """What may come next out of an iterator: of a dict its keys, which nobody can write to."""
        flat = OUTER_FLAT if share & OUTER_ROWS else NONE
        return self.within(share & ~NESTED) | flat

    def copied(self, share: Share) -> Share:
        """What a slice, or a copy of a list, dict or set, may be: something new of what is in it.

        Of an array and of a tensor it is a part; what else may hold some gives what is within.
        """
        inside = self.inner(share)
        if inside & ~(OUTER | OWN):
            return self.within(share)
        self.contain(inside)
        return self.hidden

    def asked(self, share: Share, name: str) -> Share:
        """What something gives, or its class, that is asked for by name."""
        return self.inner(share) | self.loose | self.of_name(name)

    def caught(self) -> Share:
        """What an exception may be; what has made Python raise it may be in it (a key, say)."""
        found = self.anything
        if found & OUTER:
            found |= OUTER_DEEP
        return found | OWN_DEEP if found & OWN else found

    def write(self, share: Share, attribute: bool = False) -> None:
        """Something is written to; ``attribute``: an attribute of it."""
        if share & (OUTER | ARRAY | CODE if attribute else OUTER | ARRAY):
            raise NotAlone("it may write what existed before")
        if share & FOREIGN or (share & TENSOR and (attribute or not self.computes)):
            raise NotAlone("it may write a tensor")
        self.writes_own |= bool(share & OWN)


def deep(share: Share) -> Share:
    """What of something is within it, too."""
    return (share & IN_DEEP) | (OUTER_DEEP if share & NESTED else NONE)


def elements(share: Share) -> Share:
    """What of something may be put into what is computed of it.

    An array that existed before has numbers alone; what has it within has another share, too.
    """
    return deep(share) & (~NONE if share & (OUTER | OWN) else ~ARRAY)
