"""What kind of thing a callee is: the effect of calling it, and who runs it.

``program``: Python with source outside torch, numpy and the standard library: it is lowered.
``torch``: pure, one batched operation. ``draw``: torch's random functions, one row per thread.
``write``: torch's in-place functions, which write their first operand.
``host``: pure Python or C on host values. ``transform``: ``grad(f)``, what makes it, and the like.
``unknown``: anything else, once per thread.
"""

from __future__ import annotations

import builtins
import inspect
import math
import sys
import types
from abc import ABC
from functools import cache, lru_cache, partial, singledispatch
from typing import Any, Generic, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.futures import Future
from torch.overrides import get_ignored_functions, get_testing_overrides
from torch.quasirandom import SobolEngine

from autobatch.batching.marking import custom_function, is_marking
from autobatch.batching.module_classes import (
    has_own_functions,
    is_chain,
    runs_torchs,
    stage_of,
)
from autobatch.batching.replaced import NOTHING, STATE
from autobatch.batching.seldom_draws import is_drawing_module
from autobatch.batching.submodules import forward_hooks, has_backward_hooks, is_hooked, parts_of
from autobatch.batching.updates import is_custom
from autobatch.compat import draws_of_dirichlet
from autobatch.forms import STAND_INS
from autobatch.structure import own_attribute
from autobatch.transforms.records import TORCH, is_torchs, made_of

Effect = Literal["program", "torch", "draw", "write", "host", "transform", "unknown"]

# fmt: off
DRAWS = frozenset(
    [
        "rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson",
        "rand_like", "randn_like", "randint_like", "dropout", "dropout1d", "dropout2d", "dropout3d",
        "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "rrelu", "gumbel_softmax",
        "binomial", "_standard_gamma", "_sample_dirichlet",
    ]
)
# fmt: on
DRAW_WRITES = frozenset(
    {"normal_", "uniform_", "bernoulli_", "random_", "exponential_"}
    | {"geometric_", "cauchy_", "log_normal_", "dropout_", "alpha_dropout_", "feature_dropout_"}
    | {"kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_", "trunc_normal_"}
    | {"orthogonal_", "sparse_", "rrelu_"}
)
DIRICHLET: Any = draws_of_dirichlet.apply
"""Draws by a function that is not told by its name: a method, from torch 2.14 on one in C."""
GENERATORS = frozenset(
    {torch.Generator, SobolEngine, Future}
    | {np.random.Generator, np.random.RandomState, np.random.SeedSequence}
    | {np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64}
)
"""Classes whose instances change by what is drawn, or set: each thread has its own."""
# fmt: off
BARE = frozenset(
    f"torch.nn.modules.{name}"
    for name in (
        "activation", "container", "distance", "flatten", "fold", "loss", "padding", "pixelshuffle",
        "pooling", "upsampling",
    )
)
# fmt: on
"""Where torch has its modules without parameters, buffers and draws, but for ``NOT_BARE``."""
NOT_BARE = frozenset(
    {nn.AdaptiveLogSoftmaxWithLoss, nn.MultiheadAttention, nn.PReLU, nn.RReLU}
    | {nn.ParameterDict, nn.ParameterList, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d}
)
GOING_ON = (SobolEngine.__module__, "torch.serialization")
"""Where torch has functions that change what they get: an engine, a file."""
REMAKING = frozenset(
    f"torch.nn.utils.{name}"
    for name in ("weight_norm", "spectral_norm", "parametrizations", "parametrize", "prune")
)
"""Where torch has functions that change the module that they get first."""
MODULE_FILES = ("torch.nn.modules.module", "torch.nn.modules.container")
DRAW_MODULES = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.RReLU)
# fmt: off
OF_MODULES = frozenset(
    [
        "train", "eval", "requires_grad_", "zero_grad", "load_state_dict", "apply", "_apply", "to",
        "to_empty", "half", "float", "double", "bfloat16", "type", "cuda", "cpu", "xpu", "compile",
        "share_memory", "register_buffer", "register_parameter", "register_module", "add_module",
        "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
        "set_submodule", "append", "extend", "insert", "update", "pop", "popitem", "setdefault",
        "clear",
    ]
)
# fmt: on
"""Methods of modules that change their module."""
# fmt: off
HOST_BUILTINS = frozenset(
    getattr(builtins, name)
    for name in [
        "abs", "all", "any", "ascii", "bin", "bool", "bytes", "callable", "chr", "complex", "dict",
        "divmod", "enumerate", "float", "format", "frozenset", "hasattr", "hash", "hex", "id",
        "int", "isinstance", "issubclass", "len", "list", "map", "max", "min", "oct", "ord", "pow",
        "range", "repr", "reversed", "round", "set", "slice", "sorted", "str", "sum", "tuple",
        "type", "zip",
    ]
) | {partial}
# fmt: on
READ_ONLY = frozenset({print, id, hash, repr, str, format, isinstance, callable, type})
"""Callees that do not change their arguments, whatever they are."""
# fmt: off
MUTATING_METHODS = frozenset(
    [
        "append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "update",
        "setdefault", "popitem", "add", "discard", "difference_update", "intersection_update",
        "symmetric_difference_update", "appendleft", "popleft", "extendleft", "rotate", "send",
        "throw", "close", "write", "__next__",
    ]
)
# fmt: on
# fmt: off
WRITING_OPERATORS = frozenset(
    [
        "setitem", "delitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow",
        "ilshift", "irshift", "iand", "ior", "ixor", "imatmul", "iconcat",
    ]
)
# fmt: on
"""Functions of ``operator`` that may change their first argument."""
DISPATCHING = singledispatch(id).dispatch.__code__
"""That of what gives the function of a class: it keeps what it finds, which nobody sees."""
MARKS = ("host", "torch", "unknown", "program", "transform")
BUILTIN_TYPES = (
    *(str, bytes, int, float, complex, bool, tuple, list, dict, set, frozenset, range),
    torch.Size,
)
LIBRARIES = ("torch", "numpy", "functorch", "tensordict", "autobatch")
LOWERED = "torch.distributions."
"""Torch's modules that are lowered as a user's are: plain Python on what is given to them."""


@cache
def torch_functions() -> frozenset[Any]:
    """The functions and methods that torch itself lists as its own, a ``True`` among them."""
    return frozenset(filter(callable, {*get_testing_overrides(), *get_ignored_functions()}))


def effect_of(callee: Any) -> Effect:
    """Who runs a callee, for the group or thread by thread."""
    if type(callee) is types.FunctionType:
        if STATE.now is not NOTHING and STATE.now.is_met(callee):
            return "unknown"
        if callee.__closure__ or callee.__defaults__:
            return found_effect(callee)  # kept, it would keep alive what it holds
        return _effect_of(callee)
    if isinstance(callee, nn.Module):
        return module_effect(callee)
    if isinstance(callee, types.MethodType):
        if isinstance(callee.__self__, nn.Module) and is_library(callee.__func__):
            if not is_calling(callee.__func__):
                changes = callee.__func__.__name__ in OF_MODULES
                if changes or has_hooked_parts(parts_of(callee.__self__)):
                    return "unknown"
                met = STATE.now.is_met(callee.__func__, type(callee.__self__))
                return "unknown" if met else "torch"
            return "program" if module_effect(callee.__self__) == "program" else "unknown"
        if callee == DIRICHLET:
            return "draw"
        return "unknown" if is_marking(callee) else effect_of(callee.__func__)
    if isinstance(callee, partial):
        return effect_of(callee.func)
    if type(type(callee).__hash__) is types.FunctionType and is_callable_instance(callee):
        return "program"  # to look it up would ask it
    try:
        return _effect_of(callee)
    except TypeError:  # unhashable: an object of a class that compares by value
        return "program" if is_callable_instance(callee) else "unknown"


@lru_cache(maxsize=4096)
def _effect_of(callee: Any) -> Effect:
    return found_effect(callee)


def found_effect(callee: Any) -> Effect:
    if own_attribute(callee, "__module__") == "torch.futures" and callee is not Future:
        return "unknown"  # methods by which it changes
    if callee in TORCH or made_of(callee) is not None:
        return "transform"
    if callee in STAND_INS:
        return "program"
    if is_torchs(callee):
        return "torch"
    if own_attribute(callee, "__autobatch__") in MARKS:
        return callee.__autobatch__  # type: ignore[no-any-return]
    if isinstance(callee, type):
        return type_effect(callee)
    if isinstance(callee, types.FunctionType):
        return function_effect(callee)
    name = own_attribute(callee, "__name__", "")
    if is_marking(callee):
        return "unknown"
    if belongs_to_torch(callee):
        if is_custom(callee):
            return "torch"
        return "draw" if callee == DIRICHLET else torch_effect(name)
    if is_callable_instance(callee):
        return "program"
    return c_effect(callee, name)


def is_callable_instance(callee: Any) -> bool:
    """Whether calling an object runs a ``__call__`` that a user's class defines in Python."""
    method = getattr(type(callee), "__call__", None)  # noqa: B004
    return isinstance(method, types.FunctionType) and not is_library(method)


def is_calling(function: Any) -> bool:
    """Whether it is a function of torch's that calls the module that it gets."""
    return type(function) is types.FunctionType and stage_of(function) > 0


def module_effect(module: nn.Module) -> Effect:
    if not runs_torchs(type(module)):
        return "program"
    parts = parts_of(module)
    if not all(runs_torchs(type(part)) for part in parts):
        return "program"
    if any(map(has_own_functions, parts)):
        return "unknown"
    if STATE.now is not NOTHING and any(map(holds_met, parts)):
        return "program"
    if any(map(is_hooked, parts)):
        return hooked_effect(module, parts)
    if any(isinstance(part, DRAW_MODULES) and part.training for part in parts):
        return "draw"
    if any(map(is_drawing_module, parts)):
        return "draw"
    return "torch"


def hooked_effect(module: nn.Module, parts: list[nn.Module]) -> Effect:
    """Who runs a module of torch's with hooks, its own or its parts'.

    A user's hooks are programs around the ``forward``; within another of torch's modules than an
    ``nn.Sequential``, and where they are no Python of the user's, all of it runs thread by thread.
    """
    if not has_program_hooks(module) or (has_hooked_parts(parts) and not is_chain(module)):
        return "unknown"
    return "program"


def has_program_hooks(module: nn.Module) -> bool:
    """Whether the hooks that calling a module runs, if any, are the user's Python.

    None of them is of its backward: that runs for one example at a time.
    """
    if has_backward_hooks(module):
        return False
    return all(effect_of(hook) == "program" for hook in forward_hooks(module))


def has_hooked_parts(parts: list[nn.Module]) -> bool:
    """Whether any but the first, which holds them, has hooks."""
    return any(map(is_hooked, parts[1:]))


def holds_met(module: nn.Module) -> bool:
    """Whether a module holds a function of torch's that comes to what has been replaced."""
    return any(map(STATE.now.is_met, vars(module).values()))


def type_effect(kind: type) -> Effect:
    if kind in BUILTIN_TYPES or issubclass(kind, BaseException):
        return "host"
    of_library = kind.__module__.split(".")[0] in LIBRARIES and not is_lowered(kind.__module__)
    if issubclass(kind, nn.Parameter | nn.Buffer):
        return "unknown"  # each thread's own: modules tell them from other tensors
    if issubclass(kind, nn.Module) and not holds_nothing(kind):
        return "unknown"
    if of_library or issubclass(kind, nn.Module):
        return "host" if kind not in GENERATORS else "unknown"
    if kind.__module__ == "builtins" or not has_python_source(kind):
        return "host" if kind in HOST_BUILTINS else "unknown"
    return "program"


def holds_nothing(kind: type) -> bool:
    """Whether modules of a class of torch's have no tensors but what they are given.

    One is then as good as one for each thread; others are the thread's own, and drawn for it.
    """
    return kind.__module__ in BARE and kind not in NOT_BARE


def function_effect(function: types.FunctionType) -> Effect:
    if is_calling(function):
        return "unknown"
    if belongs_to_torch(function):
        if is_sampling(function):
            return "draw"
        changes = function.__module__ in MODULE_FILES and function.__name__ in OF_MODULES
        if changes or function.__module__ in GOING_ON or function.__module__ in REMAKING:
            return "unknown"
        return torch_effect(function.__name__)
    if function.__code__ is DISPATCHING:
        return "host"
    if is_library(function) or is_generated_init(function):
        return "unknown"
    return "program"


def is_generated_init(function: Any) -> bool:
    """Whether it is an ``__init__`` that ``dataclasses`` has generated, which has no source."""
    if not isinstance(function, types.FunctionType) or function.__name__ != "__init__":
        return False
    code = function.__code__
    return code.co_filename == "<string>" and "__create_fn__" in code.co_qualname


def is_sampling(function: types.FunctionType) -> bool:
    """Whether it draws from a distribution of torch's."""
    module = function.__module__ or ""
    name = function.__name__
    return module.startswith("torch.distributions.") and name in ("sample", "rsample", "sample_n")


def is_inplace_name(name: str) -> bool:
    """Whether a method of a tensor's that has this name writes to it."""
    return name.endswith("_") and not name.endswith("__")


def torch_effect(name: str) -> Effect:
    if name in DRAWS:
        return "draw"
    if is_inplace_name(name):
        return "write"
    if name.startswith("__") and name[2:-2] in WRITING_OPERATORS:
        return "write"
    return "torch"


def is_draw(callee: Any) -> bool:
    """Whether it writes random numbers into its first operand."""
    return own_attribute(callee, "__name__", "") in DRAW_WRITES


def c_effect(callee: Any, name: str) -> Effect:
    owner = own_attribute(callee, "__self__")
    if callee in HOST_BUILTINS or owner is math:
        return "host"
    module = own_attribute(callee, "__module__") or ""
    if module == "_operator" and name in WRITING_OPERATORS:
        return "unknown"
    if isinstance(callee, np.ufunc):
        return "host"
    if module in ("math", "_operator", "cmath") or module == "numpy":
        return "host"
    kind = own_attribute(callee, "__objclass__") or (
        type(owner) if owner is not None and not isinstance(owner, types.ModuleType) else None
    )
    writes = name in MUTATING_METHODS or name[2:-2] in WRITING_OPERATORS
    if kind in BUILTIN_TYPES and not writes:
        return "host"
    return "unknown"


def belongs_to_torch(callee: Any) -> bool:
    if own_attribute(callee, "__objclass__") is object:  # ``Tensor.__setattr__`` is object's
        return False
    try:
        if callee in torch_functions():
            return True
    except TypeError:  # a list, say, which nobody can call
        return False
    if custom_function(callee) is not None:
        return True  # ``apply``, of a class of the user's; torch 2.14 has it in C
    module = own_attribute(callee, "__module__") or ""
    if module.split(".")[0] == "torch":
        return not is_lowered(module)
    return own_attribute(callee, "__objclass__") in (Tensor, torch._C.TensorBase)


def is_lowered(module: str) -> bool:
    return module.startswith(LOWERED)


def is_library(function: Any) -> bool:
    """Whether a Python function is torch's, numpy's, autobatch's or the standard library's."""
    return is_library_module(own_attribute(function, "__module__") or "")


EMPTY_BASES: tuple[Any, ...] = (Generic, ABC)
"""Bases of Python's that give instances nothing."""


def has_library_base(kind: type) -> bool:
    """Whether a class or a base has code that is not the user's, but for what gives instances none.

    ``Generic`` stands among the bases of ``class Box[T]``, too.
    """
    return any(is_library(base) for base in kind.__mro__[:-1] if base not in EMPTY_BASES)


def is_library_module(name: str) -> bool:
    module = name.partition(".")[0]
    if module in LIBRARIES:
        return not is_lowered(name)
    return module in sys.stdlib_module_names and module != "__main__"


def has_python_source(kind: type) -> bool:
    """Whether a class is the user's own: its ``__init__``, if any, is Python to be lowered."""
    if is_library(kind):
        return False
    return kind.__flags__ & (1 << 9) != 0 and inspect.isclass(kind)
