"""A batch of a program of Python objects alone, run by the user's own code, thread after thread.

In: what a run calls, its batch and options. Out: what the threads return (``Alone``), or None where
the general way is to run all threads, with nothing changed and nobody told. A thread that fails
goes the general way, by itself, which tells where and why; so does one that calls deeper than plain
Python can. A program that computes with tensors goes the general way until that has been found to
be the slower one (``measuring``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import EnumMeta
from functools import cached_property
from math import inf
from time import thread_time
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from autobatch.alone.computing import Limits, need_gradients
from autobatch.alone.contents import Contents
from autobatch.alone.given import Given, arguments, is_opaque
from autobatch.alone.kinds import NotAlone, Reasons
from autobatch.alone.printing import GaveUp, giving_up
from autobatch.alone.proof import Proof, proved
from autobatch.alone.taint import Share
from autobatch.arguments.batch import Batch
from autobatch.arguments.mapped import Memo, private
from autobatch.batching.calling.resolving import Target
from autobatch.compat import within_duals
from autobatch.errors import AutobatchError
from autobatch.frontend import MISSING
from autobatch.options import Options
from autobatch.runs.refusing import Refusals
from autobatch.vm.code import Code
from autobatch.vm.entering import receiver_of
from autobatch.vm.library import Library

MOST_PROOFS = 8
"""Of one function."""
FEW = 4
"""Threads that may print before any judgement."""
MOST_RENEWED = 8
"""Times on end that a proof does not hold when it is looked at again."""
MOST_NOTED = 64
"""Kinds of calls of one function."""
Outline = tuple[object, ...]
"""What can be told of a call at a glance."""


def note(found: dict[Outline, Any], outline: Outline, what: Any) -> None:
    if outline not in found and len(found) >= MOST_NOTED:
        found.clear()
    found[outline] = what


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Kept:
    """A proof; the receiver is kept alive, whose identity is in its key."""

    function: FunctionType
    receiver: object
    proof: Proof
    renewed: int


@dataclass(slots=True, eq=False, repr=False)
class Findings:
    """What has been found out about one function: ``proofs`` by all that it is called with,
    ``refused`` by what can be told at a glance, since looking through arguments may take longer
    than running a program that is none of objects alone. ``apart`` has calls that compute with
    tensors and have been found to be better alone, and of how many threads at most; ``together``
    those that have been measured and are not, of how many at least, and how often that was;
    ``slower``, whether the last one measured was. ``spent`` are seconds. ``printing`` are calls
    most of whose threads print. ``leading`` are the attributes by which instances among the
    arguments of any call have had more than numbers and texts. ``begun`` counts calls that plain
    Python ran at first.
    """

    proofs: dict[Any, Kept] = field(default_factory=dict)
    refused: Refusals = field(default_factory=Refusals)
    apart: dict[Outline, int] = field(default_factory=dict)
    together: dict[Outline, tuple[int, int]] = field(default_factory=dict)
    slower: dict[Outline, bool] = field(default_factory=dict)
    spent: dict[Outline, float] = field(default_factory=dict)
    printing: Refusals = field(default_factory=Refusals)
    leading: frozenset[str] = frozenset()
    begun: dict[Outline, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alone:
    """What threads have returned, by their indices; ``rest`` are those that have not.

    ``failures`` are what these have raised. ``stopped``: the last has failed, and none has run
    after it. So many have ``printed``: they have been given up where they were to do so.
    ``is_long``: all were given up after the first, since they would have taken too long.
    """

    items: list[Any]
    rest: np.ndarray
    stopped: bool
    failures: dict[int, BaseException]
    printed: int
    is_long: bool = False


@dataclass(frozen=True)
class Asked:
    """A call that plain Python might run: of a function, and perhaps its receiver."""

    function: FunctionType
    receiver: object
    code: Code
    batch: Batch
    given: dict[int | str, Given]
    library: Library
    options: Options
    isolates: bool
    limits: Limits

    @property
    def findings(self) -> Findings:
        if self.code.alone is None:
            self.code.alone = Findings()
        found: Findings = self.code.alone
        return found

    @cached_property
    def outline(self) -> Outline:
        mode = (torch.is_grad_enabled(), self.is_attached, self.limits)
        trains = isinstance(self.receiver, nn.Module) and self.receiver.training
        return (id(self.receiver), trains, *mode, *(each.outline for each in self.given.values()))

    @property
    def is_attached(self) -> bool:
        """Whether tensors among its arguments need gradients, as can be told at a glance."""
        return need_gradients(
            each.tensor for each in self.given.values() if each.tensor is not None
        )

    @property
    def is_apart(self) -> bool:
        """Whether such a call, of as many threads or more, has been found to be better alone."""
        return self.batch.size <= self.findings.apart.get(self.outline, 0)

    def some(self, index: np.ndarray) -> Asked:
        """The same for some of the threads, each of which runs whatever becomes of the others."""
        batch = self.batch.rows(index)
        given = arguments(batch, self.options)
        assert given is not None
        return replace(self, batch=batch, given=given, isolates=True)

    def may_compute(self) -> bool:
        tensors = (tensor for each in self.given.values() for tensor in each.tensors())
        return self.limits.allow(tensors)

    def is_better(self, proof: Proof) -> bool:
        """Whether plain Python is the better way for a program that it may run.

        Tensors that are given back are those of the general way, with their gradients.
        """
        if proof.computes:
            return self.may_compute()
        tensors = [each.tensor for each in self.given.values() if each.tensor is not None]
        shows = proof.keeps_tensors or proof.shows_memory
        if shows and (within_duals() or not all(map(is_all, tensors))):
            return False
        if any(each.are_objects for each in self.given.values()) or proof.most_threads is None:
            return True
        return self.batch.size <= proof.most_threads


def asked(target: Target, batch: Batch, options: Options, library: Library) -> Asked | None:
    """What a call asks for; None if that is nothing for plain Python."""
    function = target.callee
    if not (is_wanted(options) and batch.size and target.effect == "program"):
        return None
    if not isinstance(function, FunctionType) or target.kwargs or len(target.args) > 1:
        return None
    given = arguments(batch, options)
    if given is None or not any(each.is_mapped for each in given.values()):
        return None
    receiver = next(iter(receiver_of(target)), MISSING)
    if len(target.args) == 1 and receiver is MISSING:
        return None
    try:
        code = library.code_of(function, receiver)
    except AutobatchError:
        return None
    isolates = options.on_error == "isolate"
    limits = Limits.of(batch.size, options.save == "keep")
    return Asked(function, receiver, code, batch, given, library, options, isolates, limits)


def is_wanted(options: Options) -> bool:
    """Whether what threads return may be stacked at once, and nobody asks for another way."""
    return (
        options.lets_run_plainly
        and options.out_dims == 0
        and options.schedule in ("earliest", "most_threads")
    )


def is_all(tensor: Tensor) -> bool:
    """Whether a tensor that plain Python gives back has no gradient, and is where it was."""
    return not tensor.requires_grad and tensor.device.type == "cpu"


def alone(asked: Asked) -> Alone | None:
    """What the threads return, each run by itself; None if they are better run together."""
    proof = better_alone(asked)
    if proof is None:
        return None
    printing = asked.findings.printing
    if proof.gives_up is not None and printing.holds(asked.outline):
        return None
    found = run(asked, proof)
    if is_much(found.printed, asked.batch.size):
        printing.refused(asked.outline)
        return None  # nobody has seen anything, and all go one way
    if proof.gives_up is not None:
        printing.lifted(asked.outline)
    return found


def better_alone(asked: Asked) -> Proof | None:
    """The proof, where plain Python may run a call and is the better way."""
    proof = worth_it(asked, computes=asked.is_apart)
    return proof if proof is not None and asked.is_better(proof) else None


def worth_it(asked: Asked, computes: bool, outline: Outline | None = None) -> Proof | None:
    """The proof for these arguments; None if there is none, or was none for others like them.

    ``outline``: that of the call, where these are some of its threads.
    """
    refused, kind = asked.findings.refused, (computes, outline or asked.outline)
    if refused.holds(kind):
        return None
    try:
        proof = proof_of(asked, computes)
    except (NotAlone, AutobatchError):
        refused.refused(kind)
        return None
    refused.lifted(kind)
    return proof


def looked_through(asked: Asked, computes: bool) -> tuple[dict[int | str, Share], Contents]:
    """What the arguments share, and what is in them."""
    contents = Contents(computes)
    shares = {name: each.share(contents, computes) for name, each in asked.given.items()}
    for each in contents.callables:
        if not (isinstance(each, EnumMeta) and each in contents.classes):  # a member knows it
            raise NotAlone("functions, or classes, are among its arguments")
    asked.limits.check(contents.tensors)
    return shares, contents


def new_proof(asked: Asked, computes: bool, refusals: Reasons | None = None) -> Proof:
    """The proof for these arguments, whatever has been found before.

    ``refusals`` is filled with all that there is against it, and then the proof is none.
    """
    return proof_for(asked, computes, *looked_through(asked, computes), refusals)


def proof_for(
    asked: Asked,
    computes: bool,
    shares: dict[int | str, Share],
    contents: Contents,
    refusals: Reasons | None = None,
) -> Proof:
    holds_tensors, classes = bool(contents.tensors), frozenset(contents.classes)
    function, receiver = asked.function, asked.receiver
    leading = asked.findings.leading | contents.leading
    attached = asked.is_attached or need_gradients(contents.tensors)
    how = (asked.library, computes, holds_tensors, attached, asked.limits)
    rest = (contents.modules, refusals, contents.numpy, leading)
    return proved(function, receiver, shares, classes, *how, *rest)


def proof_of(asked: Asked, computes: bool) -> Proof:
    """The proof for these arguments, kept or new; ``NotAlone`` if there is none.

    What it rests on is another thing at each call, where it is: then none is made for a while.
    """
    function, receiver, proofs = asked.function, asked.receiver, asked.findings.proofs
    if (
        isinstance(receiver, nn.Module) and not computes
    ):  # before all that is given is looked through
        raise NotAlone("modules are called")
    shares, contents = looked_through(asked, computes)
    classes, holds_tensors = frozenset(contents.classes), bool(contents.tensors)
    objects = (id(receiver), *map(id, contents.modules))  # kept alive, with the proof
    attached = asked.is_attached or need_gradients(contents.tensors)
    leading = asked.findings.leading = asked.findings.leading | contents.leading
    holds = (holds_tensors, contents.numpy, attached, leading)
    key = (computes, asked.limits, tuple(shares.items()), classes, holds, objects)
    kept, renewed = proofs.pop(key, None), 0
    if kept is not None:
        if kept.function is function and kept.proof.holds(asked.limits):
            proofs[key] = replace(kept, renewed=0)
            return kept.proof
        renewed = kept.renewed + 1
        if renewed > MOST_RENEWED:
            raise NotAlone("what it reads is another thing at each call")
    proof = proof_for(asked, computes, shares, contents)
    for old in list(proofs)[: len(proofs) - MOST_PROOFS + 1]:
        proofs.pop(old, None)  # another host thread may have been here
    proofs[key] = Kept(function, receiver, proof, renewed)
    return proof


def run(asked: Asked, proof: Proof, within: float = inf) -> Alone:
    """Call the function for each thread, lowest first, up to the first that fails.

    ``within`` are the seconds that all may take, if each takes as long as the first.
    """
    plain: Callable[..., Any] = asked.function
    if asked.receiver is not MISSING:
        plain = asked.function.__get__(asked.receiver)
    attached = proof.computes and asked.limits.gradients
    size, given = asked.batch.size, read(asked.given, attached)
    names = [name for name in given if not isinstance(name, int)]
    count = len(given) - len(names)
    shared = [each.is_as_it_is for each in given.values()]
    own = [each.is_copied for each in asked.given.values()]
    copied = [not each for each in map(operator.or_, shared, own)]
    copies = proof.copies and any(copied)
    gives_copies = proof.returns and (any(shared) or not proof.copies)

    def items(name: int | str) -> Sequence[Any]:
        each = given[name]
        return [each.value] * size if each.items is None else each.items

    def called(row: Sequence[Any], copies: bool) -> Any:
        if copies:
            memo: Memo = {}
            row = tuple(
                private(item, memo=memo) if is_copied else item
                for is_copied, item in zip(copied, row, strict=True)
            )
        if names:
            return plain(*row[:count], **dict(zip(names, row[count:], strict=True)))
        return plain(*row)

    found: list[Any] = []
    rest: list[int] = []
    failures: dict[int, BaseException] = {}
    stopped, printed = False, 0
    rows = zip(*[items(name) for name in given], strict=True)
    begin = thread_time() if within < inf else 0.0
    with giving_up(proof.prints is not None, proof.shows is not None):
        for index, row in enumerate(rows):
            if printed >= FEW and is_much(printed, index):
                rest += range(index, size)
                break
            try:
                value = called(row, copies)
                if proof.keeps_own and not copies and is_opaque(value):
                    value = called(row, copies=True)  # nobody has seen what the first call did
                if gives_copies:
                    value = private(value)
            except KeyboardInterrupt:  # the user's, not the program's
                raise
            except GaveUp:
                rest.append(index)
                printed += 1
                value = None
            except RecursionError:  # of the copies, perhaps: there is more room in the general way
                rest.append(index)
                value = None
            except BaseException as error:
                rest.append(index)
                failures[index] = error
                value = None
                stopped = not asked.isolates
                if stopped:
                    break
            found.append(value)
            if not index and within < inf and within < (thread_time() - begin) * size:
                return Alone([], np.arange(size), False, {}, 0, is_long=True)
    found += [None] * (size - len(found))
    return Alone(found, np.array(rest, dtype=np.int64), stopped, failures, printed)


def is_much(printed: int, threads: int) -> bool:
    """Whether so many of the threads print that the others are not worth a way of their own."""
    return 2 * printed > threads


def read(given: Mapping[int | str, Given], attached: bool) -> dict[int | str, Given]:
    """The arguments for plain Python; what all threads share is one, however often it is given.

    ``attached``: where they have gradients, these go on to what is given.
    """
    found: dict[int | str, Given] = {}
    shared: dict[int, Given] = {}
    for name, each in given.items():
        if each.is_shared:
            found[name] = shared.setdefault(id(each.tensor), each.read(attached))
        else:
            found[name] = each.read(attached)
    return found
