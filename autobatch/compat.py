"""Every private torch interface that autobatch uses, and a probe that they are there.

torch's public ``vmap`` spends most of its time on pytrees; the primitives under it (enter a level,
add a batch dimension, take it off) cost about a microsecond each. They are private, so this is the
only module that names them: when torch moves one, ``probe`` says which, and the rest of autobatch
does not change.
"""

from __future__ import annotations

import functools
import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._functorch.predispatch import lazy_load_decompositions
from torch._functorch.pyfunctorch import (
    temporarily_clear_interpreter_stack,
    temporarily_pop_interpreter_stack,
)
from torch._higher_order_ops.scan import scan as torch_scan
from torch._higher_order_ops.while_loop import while_loop as torch_while_loop
from torch._library.custom_ops import CustomOpDef
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.distributions.dirichlet import _Dirichlet as draws_of_dirichlet
from torch.distributions.kl import _dispatch_kl as kl_rule_of
from torch.distributions.kl import _kl_expfamily_expfamily as kl_of_one_family
from torch.nn import Module
from torch.nn.modules.module import _global_backward_hooks as BACKWARD_HOOKS
from torch.nn.modules.module import _global_backward_pre_hooks as BACKWARD_PRE_HOOKS
from torch.nn.modules.module import _global_buffer_registration_hooks as BUFFER_HOOKS
from torch.nn.modules.module import _global_forward_hooks as FORWARD_HOOKS
from torch.nn.modules.module import _global_forward_hooks_with_kwargs as FORWARD_HOOKS_WITH_KWARGS
from torch.nn.modules.module import _global_forward_pre_hooks as FORWARD_PRE_HOOKS
from torch.overrides import _get_current_function_mode_stack as function_modes
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _disable_current_modes

from autobatch import firsthand
from autobatch.errors import AutobatchError
from autobatch.structure import own_attribute

__all__ = [
    "BACKWARD_HOOKS",
    "BACKWARD_PRE_HOOKS",
    "BUFFER_HOOKS",
    "FALLBACK_OFF",
    "FORWARD_HOOKS",
    "FORWARD_HOOKS_WITH_KWARGS",
    "FORWARD_PRE_HOOKS",
    "LISTS_ARE_TUPLES",
    "SCAN_STACKS_AT_DIM",
    "CustomOpDef",
    "OpOverload",
    "OpOverloadPacket",
    "add_batch_dim",
    "after_backward",
    "any_autocast",
    "backward_at_work",
    "batch_dim",
    "current_level",
    "default_device",
    "deterministic",
    "drawing_alike",
    "draws_of_dirichlet",
    "enter_level",
    "factory_device",
    "fake_mode",
    "flash_attention",
    "foreach_copy",
    "has_no_data",
    "holders_of",
    "is_batched",
    "is_default_generator",
    "is_wrapped",
    "kl_of_one_family",
    "kl_rule_of",
    "lean_attention",
    "leave_level",
    "level_of",
    "native_attention",
    "native_encoder_layer",
    "no_data",
    "node_at_work",
    "on_host",
    "operator_name",
    "outside_everything",
    "outside_level",
    "outside_levels",
    "overload_of",
    "overloads_of",
    "plain_attention",
    "pop_hooks",
    "probe",
    "publicly",
    "push_hooks",
    "quiet",
    "same_bits",
    "set_grad",
    "storage_id",
    "tangent_of",
    "torch_scan",
    "torch_while_loop",
    "uncompiled",
    "unwrap_batched",
    "unwrap_if_dead",
    "unwrapped",
    "within_duals",
    "within_level",
    "within_modes",
]

_functorch = torch._C._functorch
_NAMES = (
    "_vmap_increment_nesting",
    "_vmap_decrement_nesting",
    "_add_batch_dim",
    "_unwrap_batched",
    "is_batchedtensor",
    "maybe_current_level",
    "is_functorch_wrapped_tensor",
    "get_unwrapped",
    "maybe_get_bdim",
    "maybe_get_level",
    "unwrap_if_dead",
    "peek_interpreter_stack",
    "push_dynamic_layer_stack",
    "pop_dynamic_layer_stack",
    "CVmapInterpreterPtr",
    "_is_vmap_fallback_enabled",
    "_set_vmap_fallback_enabled",
)
for _name in _NAMES:
    if not hasattr(_functorch, _name):
        raise ImportError(
            f"torch {torch.__version__} has no torch._C._functorch.{_name}, which autobatch needs; "
            "install a version of torch that autobatch names as tested"
        )

enter_level = _functorch._vmap_increment_nesting
leave_level = _functorch._vmap_decrement_nesting
add_batch_dim = _functorch._add_batch_dim
unwrap_batched = _functorch._unwrap_batched
unwrap_if_dead = _functorch.unwrap_if_dead
current_level = _functorch.maybe_current_level
is_batched = _functorch.is_batchedtensor
is_wrapped = _functorch.is_functorch_wrapped_tensor
unwrapped = _functorch.get_unwrapped
level_of = _functorch.maybe_get_level
batch_dim = _functorch.maybe_get_bdim
native_attention = torch._native_multi_head_attention
native_encoder_layer = torch._transformer_encoder_layer_fwd
outside_level = temporarily_pop_interpreter_stack
outside_levels = temporarily_clear_interpreter_stack
any_autocast = torch._C._is_any_autocast_enabled
_len_torch_dispatch_stack = torch._C._len_torch_dispatch_stack
_len_torch_function_stack = torch._C._len_torch_function_stack
_get_function_stack_at = torch._C._get_function_stack_at
deterministic = torch._C._get_deterministic_algorithms
backward_at_work = torch._C._current_graph_task_id
node_at_work = torch._C._current_autograd_node
next_node = torch._C._autograd._get_sequence_nr
"""The number of the next node that this host thread makes in any graph of autograd's."""
push_hooks = torch._C._autograd._push_saved_tensors_default_hooks
"""Enter ``torch.autograd.graph.saved_tensors_hooks``; ``pop_hooks`` leaves it."""
pop_hooks = torch._C._autograd._pop_saved_tensors_default_hooks
set_grad = torch._C._set_grad_enabled
after_backward = torch.autograd.Variable._execution_engine.queue_callback
foreach_copy = torch._foreach_copy_
flash_attention = torch._C._get_flash_sdp_enabled
lean_attention = torch._C._get_mem_efficient_sdp_enabled
plain_attention = torch._C._get_math_sdp_enabled

SCAN_STACKS_AT_DIM = torch.__version__ >= "2.13"
"""Whether the outputs of torch's ``scan`` stack along ``dim``, rather than along the first one."""

lazy_load_decompositions()  # torch's batching rules that are written in Python; once per process


def operator_name(function: object) -> str | None:
    """The name ``ns::op`` of a custom operator, an overload or several; None for anything else."""
    if isinstance(function, CustomOpDef):
        return str(function._qualname)
    if isinstance(function, OpOverload):
        return str(function)
    if isinstance(function, OpOverloadPacket):
        return str(function._qualified_op_name)
    return None


OWN_NAMES = {"_VariableFunctionsClass.": "torch.", "TensorBase.": "Tensor."}
"""How torch's own functions and methods name what they are of."""


def shown_name(function: object) -> str:
    """How a message names a callable."""
    owner = own_attribute(function, "__self__")
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        return f"{owner.__qualname__}.{own_attribute(function, '__name__')}"
    named = operator_name(function) or own_attribute(function, "__qualname__")
    named = named or own_attribute(function, "__name__") or type(function).__name__
    return publicly(str(named))


def publicly(name: str) -> str:
    """A name of torch's as users know it."""
    for own, known in OWN_NAMES.items():
        if name.startswith(own):
            return known + name.removeprefix(own)
    return name


def overloads_of(function: Any) -> list[Any]:
    """The callables that a registration for an operator is for: its overloads, if it has some."""
    if isinstance(function, OpOverloadPacket):
        names: list[str] = function.overloads()  # type: ignore[no-untyped-call]
        return [function, *(getattr(function, name) for name in names)]
    return [overload_of(function)]


def overload_of(function: Any) -> Any:
    """The overload that a custom operator has, or several have that are one; else as it is."""
    if isinstance(function, CustomOpDef):
        return function._opoverload
    if isinstance(function, OpOverloadPacket):
        names: list[str] = function.overloads()  # type: ignore[no-untyped-call]
        return getattr(function, names[0]) if len(names) == 1 else function
    return function


@functools.cache
def _keep_device_guard() -> None:
    """See to it that what torch 2.11 makes with the first fake tensor of the process stays.

    A build for CUDA makes a guard for the device that is not there, for all host threads, in the
    memory of the one that asks first: the next to ask after that one has ended reads what is gone
    and ends the process. Recordings have host threads of their own, so one that never ends asks.
    """
    if torch.__version__ >= "2.12" or torch.cuda.is_available():
        return
    asked = threading.Event()

    def ask() -> None:
        torch._C._ensureCUDADeviceGuardSet()
        asked.set()
        threading.Event().wait()

    threading.Thread(target=ask, name="autobatch-device-guard", daemon=True).start()
    asked.wait()


def fake_mode(allow_non_fake_inputs: bool = False) -> FakeTensorMode:
    """A mode in which tensors hold no data; ``allow_non_fake_inputs``: real ones may join in."""
    _keep_device_guard()
    return FakeTensorMode(allow_non_fake_inputs=allow_non_fake_inputs)


def uncompiled(callee: Any) -> Any:
    """What ``torch.compile`` or ``torch.compiler.disable`` has wrapped; of others, the callee.

    A wrapper around theirs may have taken on their attributes.
    """
    if type(callee) is FunctionType:
        if str(callee.__globals__.get("__name__", "")).startswith("torch._dynamo."):
            return callee.__dict__.get("_torchdynamo_orig_callable", callee)
    elif isinstance(callee, Module) and type(callee).__module__ == "torch._dynamo.eval_frame":
        return callee._modules.get("_orig_mod", callee)
    return callee


def has_no_data(tensor: Tensor) -> bool:
    """Whether it is one of those that a recording runs on."""
    return isinstance(tensor, FakeTensor) or tensor.device.type == "meta"


def probe() -> None:
    """Raise ImportError if this torch batches a tensor in another way than is relied on here.

    That every name is there has been checked when this module was imported.
    """
    level = enter_level(2, "error")
    try:
        inner, dim = unwrap_batched(add_batch_dim(torch.zeros(2), 0, level), level)
    finally:
        leave_level()
    if dim != 0 or inner.shape != (2,):
        raise ImportError(
            f"torch {torch.__version__} batches tensors in a way unknown to autobatch"
        )


class _FallbackOff:
    """A context in which vmap refuses an operator without a rule instead of looping over it.

    torch keeps this as one flag of the process, so host threads that run at once share it:
    the first to enter saves it, the last to leave restores it.
    """

    __slots__ = ("_depth", "_lock", "_saved")

    def __init__(self) -> None:
        self._depth = 0
        self._lock = threading.Lock()
        self._saved = True

    def __enter__(self) -> None:
        with self._lock:
            if self._depth == 0:
                self._saved = _functorch._is_vmap_fallback_enabled()  # type: ignore[attr-defined]
                _functorch._set_vmap_fallback_enabled(False)  # type: ignore[attr-defined]
            self._depth += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                _functorch._set_vmap_fallback_enabled(self._saved)  # type: ignore[attr-defined]


FALLBACK_OFF = _FallbackOff()


@contextmanager
def outside_everything() -> Iterator[None]:
    """Leave every functorch level and dispatch mode, and autograd, until the end of the context."""
    with ExitStack() as stack:
        stack.enter_context(outside_levels())
        stack.enter_context(_disable_current_modes())
        stack.enter_context(torch.no_grad())
        yield


def same_bits(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """``tensor.view(dtype)``, of a dtype as wide; torch 2.11 has no rule of vmap's for it."""
    if not is_batched(tensor):
        return tensor.view(dtype)
    level, dim = _functorch.maybe_get_level(tensor), _functorch.maybe_get_bdim(tensor)
    viewed: Tensor = add_batch_dim(same_bits(_functorch.get_unwrapped(tensor), dtype), dim, level)
    return viewed


def own_randomness() -> str:
    """What the innermost level says of draws, which is one of vmap's."""
    top = _functorch.peek_interpreter_stack()
    said: str = _functorch.CVmapInterpreterPtr(top).randomness().name.lower()
    return said


@contextmanager
def drawing_alike(level: int | None = None, randomness: str | None = None) -> Iterator[None]:
    """Let vmap levels, by default all, which may forbid draws, take one for all of their rows.

    Where a ``randomness`` is given, levels of another one than that or none forbid draws.
    """
    layers: list[tuple[Any, int | None, str]] = []  # innermost first; the size of a vmap's
    while (top := _functorch.peek_interpreter_stack()) is not None:
        maps = top.key() == _functorch.TransformType.Vmap and level in (None, top.level())
        found = _functorch.CVmapInterpreterPtr(top) if maps else None
        said = "error" if found is None else found.randomness().name.lower()
        is_one = randomness is None or said in ("error", randomness)
        size = None if found is None else found.batchSize()
        layers.append((_functorch.pop_dynamic_layer_stack(), size, "same" if is_one else "error"))
    for layer, size, draws in reversed(layers):
        if size is None:
            _functorch.push_dynamic_layer_stack(layer)
        else:
            enter_level(size, draws)
    try:
        yield
    finally:
        for _, size, _ in layers:
            _functorch.pop_dynamic_layer_stack() if size is None else leave_level()
        for layer, _, _ in reversed(layers):
            _functorch.push_dynamic_layer_stack(layer)


def takes_lists_for_tuples() -> bool:
    """Whether ``x[[i, j]]`` of two lists is ``x[i, j]``, which torch says is to change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.zeros(1, 1, device="cpu")[[[0], [0]]].dim() == 1


LISTS_ARE_TUPLES = takes_lists_for_tuples()

SPARSE = frozenset(
    {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}
)
"""Layouts of tensors that have no storage of their own."""


def storage_id(tensor: Tensor) -> int:
    """Equal for two tensors exactly if they share storage; sees through functorch's wrappers."""
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    if tensor.layout in SPARSE:
        return id(tensor)
    return int(firsthand.untyped_storage(tensor)._cdata)


def is_default_generator(generator: torch.Generator) -> bool:
    """Whether it is the host's own; a dispatch mode gets another Python object for it."""
    own: int = torch.default_generator._cdata  # type: ignore[attr-defined]
    return bool(generator._cdata == own)  # type: ignore[attr-defined]


def holders_of(tensor: Tensor) -> tuple[int, int]:
    """How many references torch counts to a tensor, and how many tensors to its memory."""
    storage: int = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return tensor._use_count(), storage  # type: ignore[attr-defined]


def within_level() -> bool:
    """Whether a functorch level is at work: then a tensor may be one of derivatives unseen."""
    return current_level() is not None


def within_duals() -> bool:
    """Whether tensors may have tangents of forward mode."""
    return forward_ad._current_level >= 0


def may_derive() -> bool:
    """Whether either is so."""
    return current_level() is not None or forward_ad._current_level >= 0


def tangent_of(tensor: Tensor) -> Tensor | None:
    """The tangent of a tensor in forward mode, ours or that of functorch's level."""
    if not within_duals():
        return None
    tangent: Tensor | None = forward_ad.unpack_dual(tensor, level=0).tangent  # type: ignore[no-untyped-call]
    return tangent


def default_device() -> Any:
    """What ``torch.set_default_device`` has set last on this host thread, if anything."""
    mode = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if mode is None else mode.device


def factory_device() -> torch.device | None:
    """Where tensors go that name no device, by a mode or the default device; None: to the CPU.

    ``torch.get_default_device`` says the same in fifty times the time.
    """
    for place in reversed(range(_len_torch_function_stack())):
        mode = _get_function_stack_at(place)
        if type(mode) is DeviceContext:
            return None if mode.device.type == "cpu" else mode.device
    return None


def within_modes() -> bool:
    """Whether something of the caller's sees each operator, or each function of torch's.

    A default device, by which torch only says where fresh tensors go, is none.
    """
    if _len_torch_dispatch_stack():
        return True
    modes = function_modes() if _len_torch_function_stack() else ()  # type: ignore[no-untyped-call]
    return any(type(mode) is not DeviceContext for mode in modes)


def on_host(tensor: Tensor) -> np.ndarray:
    """What a tensor holds, as an array on the host.

    Sees through the wrappers of functorch, whose levels have no arrays: under ``torch.func.grad``
    or ``jvp`` a tensor wraps one that has the data. One that ``torch.vmap`` maps has a row for each
    of what that maps over, which is no row of ours.
    """
    if tensor.requires_grad:
        tensor = tensor.detach()
    if current_level() is None and not _functorch.is_functorch_wrapped_tensor(tensor):
        return tensor.cpu().numpy()
    while _functorch.is_functorch_wrapped_tensor(tensor):
        if is_batched(tensor):
            raise AutobatchError(
                "autobatch reads a tensor that torch.vmap maps, to know which way an example goes. "
                "Replace the torch.vmap that is around by autobatch.vmap, or pass the tensor to "
                "autobatch.vmap as an argument."
            )
        tensor = _functorch.get_unwrapped(tensor)
    with outside_levels():
        return tensor.cpu().numpy()


def on_device(array: np.ndarray, device: torch.device | None) -> Tensor:
    """An array of the host's as a tensor there; on the CPU, or for None, of the same memory.

    What the device is busy with is not waited for. The array may change afterwards: what is
    copied has been read by then, since the memory of arrays is pageable.
    """
    tensor = torch.from_numpy(array)
    if device is None or device.type == "cpu":
        return tensor
    return tensor.to(device, non_blocking=True)


def on_one_device(tensors: list[Tensor]) -> list[Tensor]:
    """The same, together: what lies on the host goes to where the others are.

    Of a batch on a device, what follows from a tensor that the program has on the host stays there.
    """
    if len({tensor.device for tensor in tensors}) == 1:
        return tensors
    there = next(tensor.device for tensor in tensors if not tensor.is_cpu)
    return [tensor.to(there, non_blocking=True) for tensor in tensors]


@contextmanager
def no_data(mixes_real_tensors: bool) -> Iterator[None]:
    """Tensors made inside hold no data: meta tensors, or fake ones where real tensors join in."""
    if mixes_real_tensors:
        with fake_mode(allow_non_fake_inputs=True):
            yield
    else:
        with torch.device("meta"):
            yield


class _Silence(logging.Filter):
    """Drops what one host thread logs."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = threading.get_ident()

    def filter(self, record: logging.LogRecord) -> bool:
        return threading.get_ident() != self.thread


@contextmanager
def quiet() -> Iterator[None]:
    """Fake tensors do not log the failures of this host thread, which become reasons here."""
    own = _Silence()
    fake_tensor.log.addFilter(own)
    try:
        yield
    finally:
        fake_tensor.log.removeFilter(own)
