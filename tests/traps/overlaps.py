"""Small programs of two arguments that write tensors which they read a part of."""

# ruff: noqa
# What users write, idiomatic or not, is what these are for.

from __future__ import annotations

import torch


def w01(x, n):
    y = torch.arange(6.0) + x
    y[1:4] = y[0:3]
    return y


def w02(x, n):
    y = torch.arange(6.0) + x
    y[0:3] = y[3:6]
    return y


def w03(x, n):
    y = torch.arange(6.0) + x
    y[1:4] += y[0:3]
    return y


def w04(x, n):
    y = torch.arange(6.0) + x
    y[2:5].copy_(y[1:4])
    return y


def w05(x, n):
    y = torch.arange(6.0) + x
    y[1:4] = y[1:4]
    return y


def w06(x, n):
    y = (torch.arange(6.0) + x).reshape(2, 3)
    y[0] = y[:, 0][:1]
    return y


def w07(x, n):
    y = torch.arange(6.0) + x
    y[:] = y.flip(0)
    return y


def w08(x, n):
    y = torch.arange(6.0) + x
    y[1:] = y[:-1].clone()
    return y


def w09(x, n):
    y = torch.arange(9.0).reshape(3, 3) + x
    y[:] = y.t()
    return y


def w10(x, n):
    y = torch.arange(6.0) + x
    torch.add(y[:3], 1, out=y[1:4])
    return y


def w11(x, n):
    y = torch.arange(6.0) + x
    v = y[1:4]
    v.mul_(y[2:5])
    return y


def w12(x, n):
    y = torch.arange(6.0) + x
    for i in range(5):
        y[i] = y[i + 1]
    y[0], y[1] = y[1], y[0]
    y[0:2], y[4:6] = y[4:6] + 0, y[0:2] + 0
    return y


def w13(x, n):
    y = torch.arange(6.0) + x
    k = int(n) % 5
    y[k] = y[k + 1]
    y[-1] = y[0]
    return y


def w14(x, n):
    y = (torch.arange(9.0) + x).reshape(3, 3)
    y[0] = y[1]
    y[:, 0] = y[:, 1]
    y[0] += y[2]
    y += y
    y *= y[0]
    return y


def w15(x, n):
    y = torch.arange(6.0) + x
    y.copy_(y)
    y.add_(y)
    y[...] = y
    y[:] = y
    y[1:3] = y[1:3]
    return y


def w16(x, n):
    y = torch.arange(6.0) + x
    if n > 1:
        y[1:4] = y[0:3]
    return y


def w17(x, n):
    y = torch.arange(6.0) + x
    try:
        y[1:4] = y[0:3]
    except RuntimeError:
        y = y * 2
    return y
