"""The modules that a module consists of, and the hooks that calling one runs.

A warm call asks for them several times; ``modules()`` puts names together that nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from torch import nn

from autobatch.compat import BACKWARD_HOOKS, BACKWARD_PRE_HOOKS, FORWARD_HOOKS, FORWARD_PRE_HOOKS


def has_forward_hooks(module: nn.Module) -> bool:
    """Whether calling it runs hooks, its own or those of all modules, before or after."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or FORWARD_HOOKS or FORWARD_PRE_HOOKS
    )


def has_backward_hooks(module: nn.Module) -> bool:
    """Whether its backward runs hooks, which know one example's gradients."""
    own = module._backward_hooks or module._backward_pre_hooks
    return bool(own or BACKWARD_HOOKS or BACKWARD_PRE_HOOKS)


def forward_hooks(module: nn.Module) -> tuple[Callable[..., Any], ...]:
    """The hooks that calling it runs, before or after."""
    before = (*FORWARD_PRE_HOOKS.values(), *module._forward_pre_hooks.values())
    return (*before, *FORWARD_HOOKS.values(), *module._forward_hooks.values())


def is_hooked(module: nn.Module) -> bool:
    """The same, with those of its backward."""
    return has_forward_hooks(module) or has_backward_hooks(module)


def hook_key(module: nn.Module) -> tuple[Hashable, ...]:
    """Which hooks calling it runs."""
    own = (*module._forward_hooks, *module._forward_pre_hooks, *module._backward_hooks)
    alls = (*FORWARD_HOOKS, *FORWARD_PRE_HOOKS, *BACKWARD_HOOKS, *BACKWARD_PRE_HOOKS)
    return (*own, *module._backward_pre_hooks, *alls)


def parts_of(module: nn.Module) -> list[nn.Module]:
    """The module and all within it, each once, in the order of ``modules()``."""
    if not module._modules:
        return [module]
    found: dict[int, nn.Module] = {}
    note(module, found)
    return list(found.values())


def note(module: nn.Module, found: dict[int, nn.Module]) -> None:
    if id(module) in found:
        return
    found[id(module)] = module
    for part in module._modules.values():
        if part is not None:
            note(part, found)
