"""``save="offload"``: what a run saves on a device goes to the host, and comes back in time.

Once a run has saved ``after`` bytes, every further storage of at least ``least`` bytes that its
kernels make is copied to the host, once, however many tensors of it are saved, while kernels run
on. A backward reads them in the opposite order: when one is read, those that left just before it
begin to come back (Yu et al., "Dynamic control flow in large-scale machine learning", EuroSys 2018,
section 5.3). What the run was given (parameters, arguments) stays where it is.

How bytes move is a ``Transfer``'s business, see ``streams``; a device that has none, the CPU among
them, keeps everything.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, UntypedStorage
from torch.autograd.graph import saved_tensors_hooks

from autobatch.compat import storage_id
from autobatch.saving.savers import CHANGED, results, version
from autobatch.saving.streams import transfer_of

AHEAD = 4
"""How many parcels begin to come back when one is read."""


class Transfer(Protocol):
    """Copies bytes between a device and the host, beside what the device does.

    ``out`` gives what ``back`` takes, and that gives what ``arrived`` takes.
    """

    def out(self, data: Tensor) -> Any:
        """Begin to copy ``data``, uint8 on the device, to the host."""
        ...

    def back(self, held: Any) -> Any:
        """Begin to copy it to the device."""
        ...

    def arrived(self, coming: Any) -> Tensor:
        """The bytes on the device, for the work at hand to use."""
        ...

    def rest(self) -> None:
        """What was sent out may be written from here on."""
        ...


@dataclass(frozen=True, slots=True)
class Offload:
    """When a run's tensors go to the host: ``save=autobatch.Offload(after=2**32)``.

    ``after`` and ``least`` are bytes: what a run saves on the device before any goes, and the size
    from which a tensor is worth it. ``transfer`` gives a device's, None where it has none.
    """

    after: int = 2**30
    least: int = 2**20
    transfer: Callable[[torch.device], Transfer | None] = transfer_of


@dataclass(slots=True, eq=False, repr=False, weakref_slot=True)
class Parcel:
    """The bytes of a storage, on the host; ``coming`` is their copy on the device, if any.

    ``uses`` tensors are to be read from it, ``left`` of them since the copy began; ``is_done`` once
    all have been. ``before`` are those that left just before it, the last one first.
    """

    transfer: Transfer
    held: Any
    before: tuple[weakref.ref[Parcel], ...]
    uses: int = 0
    left: int = 0
    coming: Any = None
    is_done: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def come(self) -> None:
        """Begin to copy it to the device, if that has not begun."""
        if self.coming is None:
            self.coming, self.left = self.transfer.back(self.held), self.uses

    def expect(self) -> None:
        """It will be read soon, if this is the first backward."""
        with self.lock:
            if not self.is_done:
                self.come()

    def read(self) -> Tensor:
        """The bytes on the device; the copy goes with the last of the tensors."""
        with self.lock:
            self.come()
            data = self.transfer.arrived(self.coming)
            self.left -= 1
            if not self.left:
                self.coming, self.is_done = None, True
        for each in self.before:
            parcel = each()
            if parcel is not None:
                parcel.expect()
        return data


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sent:
    """Stands for a tensor that is in a parcel."""

    parcel: Parcel
    dtype: torch.dtype
    size: torch.Size
    stride: tuple[int, ...]
    offset: int

    def tensor(self) -> Tensor:
        data = self.parcel.read()
        whole = len(data) // self.dtype.itemsize * self.dtype.itemsize
        return data[:whole].view(self.dtype).as_strided(self.size, self.stride, self.offset)


@dataclass(slots=True, eq=False, repr=False)
class Stayed:
    """A tensor that has stayed; ``witness`` shares its memory, so tells of writes in place."""

    kept: Tensor
    witness: Tensor
    version: int

    @classmethod
    def of(cls, tensor: Tensor) -> Stayed:
        kept = tensor.detach()
        return cls(kept, kept, version(kept))

    def watch(self, tensor: Tensor) -> None:
        """Somebody else knows the tensor by this one."""
        self.witness, self.version = tensor.detach(), version(tensor)

    def tensor(self) -> Tensor:
        if version(self.witness) != self.version:
            raise RuntimeError(CHANGED)
        return self.kept


Post = tuple[Transfer | None, list[Parcel]]
"""How bytes leave a device, and the last that have."""


class Offloading:
    """Sees to what the calls of one run save, of which there are ``size`` bytes.

    ``made`` are the storages that its calls have made, ``known`` what has become of those that were
    saved, by their keys, with their versions; ``given`` are those that the call at work was given,
    ``stayed`` the tensors of its own that have stayed.
    """

    __slots__ = ("given", "known", "made", "note", "plan", "posts", "size", "stayed")

    def __init__(self, plan: Offload, note: Callable[[int], None]) -> None:
        self.plan, self.note, self.size = plan, note, 0
        self.made: weakref.WeakValueDictionary[int, UntypedStorage] = weakref.WeakValueDictionary()
        self.known: dict[int, tuple[weakref.ref[UntypedStorage], int, Parcel | None]] = {}
        self.given: set[int] = set()
        self.stayed: list[tuple[int, Stayed]] = []
        self.posts: dict[torch.device, Post] = {}

    def call(self, function: Callable[..., Any], args: Sequence[Any], is_step: bool) -> Any:
        if not torch.is_grad_enabled():
            made = function(*args)
        else:
            keys = [storage_id(arg) for arg in args if isinstance(arg, Tensor)]
            self.given = {key for key in keys if key not in self.made}
            with saved_tensors_hooks(self.pack, unpacked):
                made = function(*args)
        for out in results(made):
            key = storage_id(out)
            for other, stayed in self.stayed:
                if other == key:
                    stayed.watch(out)
            if key not in self.given:
                self.made[key] = out.untyped_storage()
        self.stayed = []
        return made

    def decide(self, answer: bool) -> None:
        """Nothing runs again."""

    def rest(self) -> None:
        for transfer, _ in self.posts.values():
            if transfer is not None:
                transfer.rest()

    def pack(self, tensor: Tensor) -> Sent | Stayed:
        if tensor.layout is torch.strided and storage_id(tensor) not in self.given:
            parcel = self.parcel(tensor)
            if parcel is not None:
                parcel.uses += 1
                offset = int(tensor.storage_offset())
                return Sent(parcel, tensor.dtype, tensor.shape, tensor.stride(), offset)
        stayed = Stayed.of(tensor)
        if tensor.layout is torch.strided:
            self.stayed.append((storage_id(tensor), stayed))
        return stayed

    def parcel(self, tensor: Tensor) -> Parcel | None:
        """What holds a tensor on the host, if it goes there."""
        storage, key = tensor.untyped_storage(), storage_id(tensor)
        known = self.known.get(key)
        if known is not None and known[0]() is storage and known[1] == version(tensor):
            return known[2]
        self.size += storage.nbytes()
        goes = self.size > self.plan.after and storage.nbytes() >= self.plan.least
        parcel = self.sent(storage) if goes else None
        self.known[key] = (weakref.ref(storage), version(tensor), parcel)
        return parcel

    def sent(self, storage: UntypedStorage) -> Parcel | None:
        """A storage's bytes on their way to the host; None where its device has no way there."""
        device = storage.device
        if device not in self.posts:
            self.posts[device] = (self.plan.transfer(device), [])
        transfer, last = self.posts[device]
        if transfer is None:
            return None
        with torch.no_grad():
            data = torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
            held = transfer.out(data)
        parcel = Parcel(transfer, held, tuple(map(weakref.ref, reversed(last))))
        last[:] = [*last, parcel][-AHEAD:]
        self.note(storage.nbytes())
        return parcel


def unpacked(packed: Sent | Stayed) -> Tensor:
    return packed.tensor()
