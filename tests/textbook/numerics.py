"""Numerical analysis: each program as a textbook has it, with the arguments of a batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch

DRAW = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(7, *shape, generator=DRAW, dtype=torch.float64)


def uniform(*shape):
    return torch.rand(7, *shape, generator=DRAW, dtype=torch.float64)


@dataclass
class LMState:
    p: torch.Tensor
    lam: float
    cost: torch.Tensor
    nfev: int = 0


def levenberg(t, y):
    def residual(p):
        return p[0] * torch.exp(-p[1] * t) + p[2] - y

    def jac(p):
        e = torch.exp(-p[1] * t)
        return torch.stack([e, -p[0] * t * e, torch.ones_like(t)], dim=1)

    p0 = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)
    st = LMState(p0, 1e-3, 0.5 * (residual(p0) ** 2).sum())
    for _it in range(50):
        J, r = jac(st.p), residual(st.p)
        A = J.T @ J
        g = J.T @ r
        if g.abs().max() < 1e-8:
            break
        H = A + st.lam * torch.diag(torch.diag(A))
        try:
            delta = torch.linalg.solve(H, -g)
        except torch.linalg.LinAlgError:
            st.lam *= 10
            continue
        trial = st.p + delta
        cost = 0.5 * (residual(trial) ** 2).sum()
        st.nfev += 1
        if cost < st.cost:
            st.p, st.cost = trial, cost
            st.lam = max(st.lam / 10, 1e-12)
        else:
            st.lam *= 10.0
            if st.lam > 1e10:
                break
    return st.p, st.cost, st.nfev


def brentq(c):
    def f(x):
        return x**3 - 2 * x - c

    a, b = -3.0, 3.0
    fa, fb = f(a), f(b)
    if fa * fb > 0:
        raise ValueError("f(a) and f(b) must have different signs")
    if abs(fa) < abs(fb):
        a, b, fa, fb = b, a, fb, fa
    cc, fc = a, fa
    d = cc
    mflag = True
    n = 0
    while abs(b - a) > 1e-9 and fb != 0 and n < 100:
        if fa != fc and fb != fc:
            s = (
                a * fb * fc / ((fa - fb) * (fa - fc))
                + b * fa * fc / ((fb - fa) * (fb - fc))
                + cc * fa * fb / ((fc - fa) * (fc - fb))
            )
        else:
            s = b - fb * (b - a) / (fb - fa)
        if (
            not ((3 * a + b) / 4 < s < b or b < s < (3 * a + b) / 4)
            or (mflag and abs(s - b) >= abs(b - cc) / 2)
            or (not mflag and abs(s - b) >= abs(cc - d) / 2)
            or (mflag and abs(b - cc) < 1e-9)
            or (not mflag and abs(cc - d) < 1e-9)
        ):
            s = (a + b) / 2
            mflag = True
        else:
            mflag = False
        fs = f(s)
        d, cc, fc = cc, b, fb
        if fa * fs < 0:
            b, fb = s, fs
        else:
            a, fa = s, fs
        if abs(fa) < abs(fb):
            a, b, fa, fb = b, a, fb, fa
        n += 1
    return b, n


def simpson(f, a, b):
    c = (a + b) / 2
    return (b - a) / 6 * (f(a) + 4 * f(c) + f(b))


def adaptive(f, a, b, eps, whole, depth=0):
    c = (a + b) / 2
    left, right = simpson(f, a, c), simpson(f, c, b)
    if abs(left + right - whole) <= 15 * eps or depth > 12:
        return left + right + (left + right - whole) / 15
    return adaptive(f, a, c, eps / 2, left, depth + 1) + adaptive(
        f, c, b, eps / 2, right, depth + 1
    )


def integrate2(w):
    def f(x):
        return torch.exp(-w * x * x)

    a, b = torch.tensor(0.0, dtype=torch.float64), torch.tensor(3.0, dtype=torch.float64)
    return adaptive(f, a, b, 1e-7, simpson(f, a, b))


def jacobi_eig(A):
    n = A.shape[0]
    A = A.clone()
    V = torch.eye(n, dtype=A.dtype)
    for sweep in range(30):  # noqa: B007
        off = (A - torch.diag(torch.diagonal(A))).norm()
        if off < 1e-9:
            break
        for p in range(n - 1):
            for q in range(p + 1, n):
                if A[p, q].abs() < 1e-12:
                    continue
                theta = (A[q, q] - A[p, p]) / (2 * A[p, q])
                t = (
                    torch.sign(theta) / (theta.abs() + torch.sqrt(theta**2 + 1))
                    if theta != 0
                    else torch.ones_like(theta)
                )
                c = 1 / torch.sqrt(t * t + 1)
                s = t * c
                J = torch.eye(n, dtype=A.dtype)
                J[p, p] = c
                J[q, q] = c
                J[p, q] = s
                J[q, p] = -s
                A = J.T @ A @ J
                V = V @ J
    w, _order = torch.sort(torch.diagonal(A))
    return w, sweep


def lanczos(A, v):
    n = A.shape[0]
    q = v / v.norm()
    Q, alphas, betas = [q], [], []
    beta = 0.0
    prev = torch.zeros_like(q)
    for j in range(n):
        w = A @ Q[-1] - beta * prev
        a = w @ Q[-1]
        w = w - a * Q[-1]
        for u in Q:
            w = w - (w @ u) * u
        alphas.append(a)
        beta = w.norm()
        if beta < 1e-8 or j == n - 1:
            break
        betas.append(beta)
        prev = Q[-1]
        Q.append(w / beta)
    T = torch.diag(torch.stack(alphas))
    if betas:
        b = torch.stack(betas)
        T = T + torch.diag(b, 1) + torch.diag(b, -1)
    return torch.linalg.eigvalsh(T).max(), len(alphas)


def simplex(c, A, b):
    m, n = A.shape
    T = torch.zeros(m + 1, n + m + 1, dtype=c.dtype)
    T[:m, :n] = A
    T[:m, n : n + m] = torch.eye(m, dtype=c.dtype)
    T[:m, -1] = b
    T[-1, :n] = -c
    basis = list(range(n, n + m))
    it = 0
    while T[-1, :-1].min() < -1e-9:
        it += 1
        if it > 50:
            raise RuntimeError("cycling")
        col = int(torch.argmin(T[-1, :-1]))
        ratios = torch.full((m,), float("inf"), dtype=c.dtype)
        for i in range(m):
            if T[i, col] > 1e-9:
                ratios[i] = T[i, -1] / T[i, col]
        if torch.isinf(ratios).all():
            raise ValueError("unbounded")
        row = ratios.argmin().item()
        basis[row] = col
        T[row] /= T[row, col].clone()
        for i in range(m + 1):
            if i != row:
                T[i] -= T[i, col].clone() * T[row]
    x = torch.zeros(n, dtype=c.dtype)
    for i, j in enumerate(basis):
        if j < n:
            x[j] = T[i, -1]
    return T[-1, -1], x, it


def sinkhorn(a, b, C, eps=0.1):
    log_a, log_b = a.log(), b.log()
    f, g = torch.zeros_like(a), torch.zeros_like(b)
    for it in range(200):  # noqa: B007
        f_prev = f
        f = eps * (log_a - torch.logsumexp((g[None, :] - C) / eps, dim=1))
        g = eps * (log_b - torch.logsumexp((f[:, None] - C) / eps, dim=0))
        if (f - f_prev).abs().max() < 1e-4:
            break
    P = torch.exp((f[:, None] + g[None, :] - C) / eps)
    return (P * C).sum(), it


TIMES = torch.linspace(0, 3, 20, dtype=torch.float64)
CURVES = (1 + uniform(1)) * torch.exp(-(0.5 + uniform(1)) * TIMES) + 0.3 + 0.01 * normal(20)
SYMMETRIC = normal(4, 4)
SYMMETRIC = (SYMMETRIC + SYMMETRIC.mT) / 2
SYMMETRIC[5] = torch.eye(4)

PROGRAMS = {
    "levenberg": (levenberg, [TIMES, CURVES], (None, 0)),
    "brentq": (brentq, [normal() * 2], 0),
    "integrate": (integrate2, [uniform() * 20], 0),
    "jacobi": (jacobi_eig, [SYMMETRIC], 0),
    "lanczos": (lanczos, [SYMMETRIC, normal(4)], 0),
    "simplex": (simplex, [uniform(3) + 0.1, uniform(4, 3) + 0.2, uniform(4) + 1], 0),
    "unbounded": (simplex, [uniform(3) + 0.1, uniform(4, 3) - 0.4, uniform(4) + 1], 0),
    "sinkhorn": (sinkhorn, [normal(4).softmax(-1), normal(5).softmax(-1), uniform(4, 5)], 0),
}
"""The programs by name, with their arguments and ``in_dims``."""
