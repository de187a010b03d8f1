"""The modes of the host thread in force, as keys: equal where calls under them are alike."""

from __future__ import annotations

from collections.abc import Hashable

import torch

from autobatch.compat import (
    factory_device,
    flash_attention,
    lean_attention,
    may_derive,
    plain_attention,
)


def ambient_key() -> Hashable:
    """The modes of the host thread that decide what an operator computes."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"),
        torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda"),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        may_derive(),
        flash_attention(),
        lean_attention(),
        plain_attention(),
        factory_device(),
    )


def ambient() -> Hashable:
    """What the modes in force amount to, by which calls under them are alike."""
    return (
        ambient_key(),
        torch.is_anomaly_enabled(),
        torch.is_anomaly_check_nan_enabled(),
    )
