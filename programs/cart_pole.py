"""The cart-pole of Barto, Sutton and Anderson (1983): a pole on a cart, pushed left or right.

A state is ``[4]``: the cart's place and speed, the pole's angle and its speed; metres, radians,
seconds. A step lasts 0.02 s.
"""

from __future__ import annotations

import torch
from torch import Tensor

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02


def pushed(state: Tensor, action: Tensor) -> Tensor:
    """The state ``[4]`` after a step in which ``action`` (0-d) is 0, to the left, or 1."""
    _, speed, angle, turning = state
    force = FORCE * (2.0 * action - 1.0)
    sine, cosine = angle.sin(), angle.cos()
    total = CART + POLE
    push = (force + POLE * HALF_LENGTH * turning**2 * sine) / total
    turn = (GRAVITY * sine - cosine * push) / (HALF_LENGTH * (4.0 / 3.0 - POLE * cosine**2 / total))
    pull = push - POLE * HALF_LENGTH * turn * cosine / total
    change = torch.stack((speed, pull, turning, turn))
    return state + SECONDS * change


def fallen(state: Tensor) -> Tensor:
    """Whether the pole leans by more than 12 degrees, or the cart is off the track."""
    return (state[0].abs() > 2.4) | (state[2].abs() > 0.2095)
