"""Modules that plain Python may call: torch's own, as they come, and those that are made of them.

In: a module that existed before. Out: nothing, or ``NotAlone`` with a reason. Calling one runs its
``forward`` and nothing else: it has no hooks, and nobody has put another function in its place. One
of torch's draws nothing and writes to no buffer as it stands; one of the user's has a ``forward``
of its own, which is looked into like any function. What torch's run is looked at before each run
(see ``torchs``). Of torch's a program may also make some, of those that have no weights.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from autobatch.alone.kinds import BARE, NotAlone, check_class, own_bases
from autobatch.batching.effects import is_library
from autobatch.batching.module_classes import methods_of
from autobatch.batching.submodules import is_hooked
from autobatch.compat import BACKWARD_PRE_HOOKS

# fmt: off
_MAKING = (
    "AdaptiveAvgPool1d AdaptiveAvgPool2d AvgPool1d AvgPool2d BCELoss BCEWithLogitsLoss BatchNorm1d"
    " BatchNorm2d BatchNorm3d Bilinear CELU Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d"
    " CosineSimilarity CrossEntropyLoss ELU Embedding EmbeddingBag GELU GLU GRU GRUCell GroupNorm"
    " Hardsigmoid Hardswish Hardtanh HuberLoss InstanceNorm1d InstanceNorm2d KLDivLoss L1Loss LSTM"
    " LSTMCell LayerNorm LeakyReLU Linear LogSigmoid LogSoftmax MSELoss MaxPool1d MaxPool2d Mish"
    " NLLLoss PReLU PairwiseDistance RMSNorm RNN RNNCell ReLU ReLU6 SELU SiLU Sigmoid SmoothL1Loss"
    " Softmax Softmin Softplus Softsign Tanh"
)
_PARTS = (
    "AlphaDropout ConstantPad1d ConstantPad2d Dropout Dropout1d Dropout2d Flatten Identity"
    " ModuleDict ModuleList MultiheadAttention ParameterDict ParameterList ReflectionPad1d"
    " ReflectionPad2d Sequential TransformerDecoder TransformerDecoderLayer TransformerEncoder"
    " TransformerEncoderLayer Unflatten ZeroPad1d ZeroPad2d"
)
_WEIGHTLESS = (
    "BCELoss BCEWithLogitsLoss CELU CosineSimilarity CrossEntropyLoss ELU GELU GLU Hardsigmoid"
    " Hardswish Hardtanh HuberLoss KLDivLoss L1Loss LeakyReLU LogSigmoid LogSoftmax MSELoss Mish"
    " NLLLoss PairwiseDistance ReLU ReLU6 SELU SiLU Sigmoid SmoothL1Loss Softmax Softmin Softplus"
    " Softsign Tanh"
)
# fmt: on


def _found(names: str) -> frozenset[type]:
    return frozenset(getattr(nn, name) for name in names.split() if hasattr(nn, name))


def place_of_inplace(kind: type) -> int | None:
    names = list(inspect.signature(kind).parameters)
    return names.index("inplace") if "inplace" in names else None


MAKING = _found(_MAKING)
"""Classes whose modules give what has memory of its own."""
KINDS = MAKING | _found(_PARTS) | {nn.modules.linear.NonDynamicallyQuantizableLinear}
"""All classes of torch's that are known; what others give may be a part of what they get."""
MADE = {kind: place_of_inplace(kind) for kind in _found(_WEIGHTLESS)}
"""Classes that a program may make modules of, with the place of ``inplace`` among what they are
given, None where they have none: such a module holds no tensor, and to call it is to call a
function of torch's.
"""
THROUGH, BY_PLACE = (nn.ModuleList, nn.Sequential), (nn.ModuleList, nn.ModuleDict)
"""Modules that a program goes through, and those of which each place has a module that is called:
parts of a ``Sequential`` are called, too.
"""
CALLING = ("__call__", "_call_impl", "_wrapped_call_impl", "_slow_forward", "forward")
FINE = frozenset({"__init__", "forward", "extra_repr", "reset_parameters", "train", "eval"})
"""Methods of ``nn.Module`` that a class of the user's may have instead, which no call runs."""
OWN = frozenset(vars(nn.Module()))
"""What torch keeps in each module: flags, hooks and tables of what it holds."""
MOST = 256
"""Modules that a program is looked through for."""
ACTIVATIONS = frozenset({F.relu, F.gelu, torch.relu, torch.tanh, F.silu, F.elu, F.leaky_relu})


def forward_of(kind: type) -> tuple[type, Any]:
    """The class whose ``forward`` calling a module runs, and that.

    Of torch's it is the one that users name: what several inherit a ``forward`` from is not known.
    """
    base, found = next((b, vars(b)["forward"]) for b in kind.__mro__ if "forward" in vars(b))
    named = (b for b in kind.__mro__ if b in KINDS and issubclass(b, base))
    return next(named, base), found


def own_forward(module: nn.Module) -> FunctionType | None:
    """The ``forward`` that the user has written; None for torch's."""
    _, found = forward_of(type(module))
    return found if isinstance(found, FunctionType) and not is_library(found) else None


def check_module(module: nn.Module) -> None:
    """Whether plain Python may call it, and see nothing else change by that."""
    kind, own = type(module), vars(module)
    name = kind.__qualname__
    if is_hooked(module) or module._backward_pre_hooks or BACKWARD_PRE_HOOKS:
        raise NotAlone(f"{name} has hooks")
    if own.get("_compiled_call_impl") is not None:
        raise NotAlone(f"{name} is compiled")
    base, forward = forward_of(kind)
    if kind not in KINDS:
        check_own(kind)
        known = base in KINDS or forward is nn.Module.forward  # which raises: it has none
        if not isinstance(forward, FunctionType) or not (known or not is_library(forward)):
            raise NotAlone(f"{name} has no forward that is known")
    if not own.keys().isdisjoint(methods_of(base) if base in KINDS else CALLING):
        raise NotAlone(f"a module of {name} has functions of its own in place of its class's")
    if base in KINDS:
        check_torchs(module, base)


def check_own(kind: type) -> None:
    """A class of the user's says what modules do by ``forward`` alone."""
    check_class(kind)
    mine = own_bases(kind)
    library = [base for base in kind.__mro__ if base not in mine and base not in BARE]
    if not {nn.Module, *KINDS}.issuperset(library):
        raise NotAlone(f"{kind.__qualname__} is made of modules that are not known")
    taken = frozenset().union(*map(methods_of, library)) - FINE - {"__init_subclass__"}
    for base in mine:
        for name in taken & {n for n, each in vars(base).items() if callable(each)}:
            raise NotAlone(f"{kind.__qualname__} has {name}, which torch calls")


def check_torchs(module: Any, base: type) -> None:
    """Whether a module of torch's draws, or writes to what it gets or holds."""
    own, name = vars(module), type(module).__qualname__
    if own.get("inplace"):
        raise NotAlone(f"{name} writes in place")
    if own.get("max_norm") is not None:
        raise NotAlone(f"{name} scales its weight")
    rate = own.get("p") if "Dropout" in base.__name__ else own.get("dropout")
    if module.training and rate and not isinstance(rate, nn.Module):
        raise NotAlone(f"{name} draws in training")
    if module.training and own.get("track_running_stats"):
        raise NotAlone(f"{name} writes its statistics in training")
    activation: Callable[..., Any] | None = own.get("activation")
    if activation is not None and activation not in ACTIVATIONS:
        raise NotAlone(f"{name} has an activation that is not known")


def names_held(module: nn.Module) -> set[str]:
    """The names by which a module has what it holds."""
    own = vars(module)
    return {*own, *own["_parameters"], *own["_buffers"], *own["_modules"]}


def held(module: nn.Module) -> list[Any]:
    """What a module holds, but for flags and hooks."""
    own = vars(module)
    found = [*own["_parameters"].values(), *own["_buffers"].values(), *own["_modules"].values()]
    if type(module) not in KINDS:
        found += [each for name, each in own.items() if name not in OWN]
    return found
