"""The modules that a module consists of, and the hooks that calling one runs.

A warm call asks for them several times; ``modules()`` puts names together that nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from torch import nn

from autobatch.compat import BACKWARD_HOOKS, FORWARD_HOOKS, FORWARD_PRE_HOOKS


def has_forward_hooks(module: nn.Module) -> bool:
    """Whether calling it runs hooks, its own or those of all modules, before or after."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or FORWARD_HOOKS or FORWARD_PRE_HOOKS
    )


def forward_hooks(module: nn.Module) -> tuple[Callable[..., Any], ...]:
    """The hooks that calling it runs, before or after."""
    before = (*FORWARD_PRE_HOOKS.values(), *module._forward_pre_hooks.values())
    return (*before, *FORWARD_HOOKS.values(), *module._forward_hooks.values())


def is_hooked(module: nn.Module) -> bool:
    """The same, with those of its backward."""
    return bool(has_forward_hooks(module) or module._backward_hooks or BACKWARD_HOOKS)


def hook_key(module: nn.Module) -> tuple[Hashable, ...]:
    """Which hooks calling it runs."""
    own = (*module._forward_hooks, *module._forward_pre_hooks)
    return (*own, *FORWARD_HOOKS, *FORWARD_PRE_HOOKS)


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
