"""Samplers, filters, clusters, simulations: as public code has them, with a batch of arguments."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import torch
import torch.nn.functional as F

DRAW = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(7, *shape, generator=DRAW)


def uniform(*shape):
    return torch.rand(7, *shape, generator=DRAW)


def gibbs_mixture(x, us, K=3):
    z = torch.arange(len(x)) % K
    mu = torch.tensor([-1.0, 0.0, 1.0])
    for it in range(4):
        for i in range(len(x)):
            logits = -0.5 * (x[i] - mu) ** 2
            p = F.softmax(logits, dim=0)
            u = us[it, i]
            c = 0.0
            for k in range(K):
                c += p[k]
                if u < c:
                    z[i] = k
                    break
            else:
                z[i] = K - 1
        for k in range(K):
            members = x[z == k]
            if len(members) == 0:
                mu[k] = 0.0
            else:
                mu[k] = members.mean()
    return mu, z, torch.bincount(z, minlength=K)


def kalman_gated(zs, x0):
    Fm = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    H = torch.tensor([[1.0, 0.0]])
    Q, R = 0.01 * torch.eye(2), torch.tensor([[0.5]])
    x, P = x0, torch.eye(2)
    rejected, missed = 0, 0
    for z in zs:
        x = Fm @ x
        P = Fm @ P @ Fm.T + Q
        if torch.isnan(z):
            missed += 1
            continue
        y = z - H @ x
        S = H @ P @ H.T + R
        d2 = y @ torch.linalg.inv(S) @ y
        if d2 > 9.0:
            rejected += 1
            if rejected > 3:
                P = P * 10
                rejected = 0
            continue
        K = P @ H.T @ torch.linalg.inv(S)
        x = x + (K @ y)
        P = (torch.eye(2) - K @ H) @ P
    return x, P, rejected, missed


def ransac(pts, picks, thr=0.3):
    best_inliers, best = 0, None
    n_iter, i = picks.size(0), 0
    while i < n_iter:
        a, b = picks[i].tolist()
        i += 1
        if a == b:
            continue
        d = pts[b] - pts[a]
        nrm = torch.stack([-d[1], d[0]])
        if nrm.norm() < 1e-6:
            continue
        nrm = nrm / nrm.norm()
        dist = ((pts - pts[a]) @ nrm).abs()
        inl = dist < thr
        if inl.sum() > best_inliers:
            best_inliers = inl.sum().item()
            best = inl
            eps = 1 - best_inliers / len(pts)
            denom = math.log(1 - (1 - eps) ** 2) if eps > 0 else -1e9
            n_iter = min(n_iter, int(math.log(0.05) / denom) + 1)
    if best is None:
        return torch.zeros(2), 0, i
    P = pts[best]
    c = P.mean(0)
    _U, _S, Vh = torch.linalg.svd(P - c)
    return Vh[0].abs(), best_inliers, i


def kmeans_empty(X, k=4, iters=10):
    C = X[:k].clone()
    assign = torch.zeros(X.shape[0], dtype=torch.long)
    for it in range(iters):
        d = torch.cdist(X, C)
        new = d.argmin(1)
        if it > 0 and torch.equal(new, assign):
            break
        assign = new
        for j in range(k):
            m = assign == j
            if m.any():
                C[j] = X[m].mean(dim=0)
            else:
                far = d.min(dim=1).values.argmax()
                C[j] = X[far]
    inertia = ((X - C[assign]) ** 2).sum()
    return C, inertia, it


def dbscan(X, eps=0.7, min_pts=3):
    n = X.shape[0]
    labels = torch.full((n,), -1)
    dist = torch.cdist(X, X)
    visited = set()
    c = -1
    for i in range(n):
        if i in visited:
            continue
        visited.add(i)
        nb = torch.where(dist[i] <= eps)[0].tolist()
        if len(nb) < min_pts:
            continue
        c += 1
        labels[i] = c
        queue = deque(nb)
        while queue:
            j = queue.popleft()
            if labels[j] == -1:
                labels[j] = c
            if j in visited:
                continue
            visited.add(j)
            nb2 = torch.nonzero(dist[j] <= eps).flatten().tolist()
            if len(nb2) >= min_pts:
                queue.extend(nb2)
    return labels, c + 1


def iou_match(pred, gt, thr=0.3):
    matches = []
    used = [False] * gt.shape[0]
    for p in pred:
        best, bi = thr, -1
        for j, g in enumerate(gt):
            if used[j]:
                continue
            lt = torch.max(p[:2], g[:2])
            rb = torch.min(p[2:], g[2:])
            wh = (rb - lt).clamp(min=0)
            inter = wh[0] * wh[1]
            union = (p[2] - p[0]) * (p[3] - p[1]) + (g[2] - g[0]) * (g[3] - g[1]) - inter
            iou = (inter / union).item()
            if iou > best:
                best, bi = iou, j
        if bi >= 0:
            used[bi] = True
        matches.append(bi)
    tp = sum(m >= 0 for m in matches)
    return torch.tensor(matches), tp, tp / max(len(matches), 1)


@dataclass
class PID:
    kp: float
    ki: float
    kd: float
    integral: float = 0.0
    prev: float | None = None

    def __call__(self, err, dt):
        self.integral = self.integral + err * dt
        d = 0.0 if self.prev is None else (err - self.prev) / dt
        self.prev = err
        out = self.kp * err + self.ki * self.integral + self.kd * d
        if out > 10:
            out = torch.tensor(10.0)
        elif out < -10:
            out = torch.tensor(-10.0)
        return out


def cartpole_pid(theta):
    pid = PID(30.0, 2.0, 4.0)
    x = xd = td = torch.tensor(0.0)
    for t in range(60):
        f = pid(theta, 0.02)
        s, c = torch.sin(theta), torch.cos(theta)
        tmp = (f + 0.05 * td**2 * s) / 1.1
        ta = (9.8 * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c * c / 1.1))
        xa = tmp - 0.05 * ta * c / 1.1
        x, xd, theta, td = x + 0.02 * xd, xd + 0.02 * xa, theta + 0.02 * td, td + 0.02 * ta
        if abs(x) > 2.4 or abs(theta) > 0.21:
            return t, theta, pid.integral
    return t, theta, pid.integral


def gae(rewards, values, dones, gamma=0.99, lam=0.95):
    adv = torch.zeros_like(rewards)
    last = 0
    for t in reversed(range(len(rewards))):
        nxt = values[t + 1] if t + 1 < len(values) else 0.0
        mask = 0.0 if dones[t] else 1.0
        delta = rewards[t] + gamma * nxt * mask - values[t]
        adv[t] = last = delta + gamma * lam * mask * last
    return adv, adv + values[: len(rewards)]


class SumTree:
    def __init__(self, cap):
        self.cap = cap
        self.tree = torch.zeros(2 * cap - 1)
        self.pos = 0

    def update(self, i, p):
        idx = i + self.cap - 1
        change = p - self.tree[idx]
        self.tree[idx] = p
        while idx != 0:
            idx = (idx - 1) // 2
            self.tree[idx] += change

    def add(self, p):
        self.update(self.pos, p)
        self.pos = (self.pos + 1) % self.cap

    def get(self, v):
        idx = 0
        while 2 * idx + 1 < len(self.tree):
            left = 2 * idx + 1
            if v <= self.tree[left]:
                idx = left
            else:
                v = v - self.tree[left]
                idx = left + 1
        return idx - self.cap + 1, self.tree[idx]


def replay(prios, us):
    t = SumTree(8)
    for p in prios:
        t.add(p)
    idxs, ws = [], []
    for u in us:
        i, p = t.get(u * t.tree[0])
        idxs.append(i)
        ws.append((8 * p / t.tree[0]) ** -0.5)
        t.update(i, p * 0.5)
    w = torch.stack(ws)
    return torch.tensor(idxs), w / w.max()


def union_find(edges, n=8):
    parent = list(range(n))
    size = [1] * n

    def find(x):
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    merges = 0
    for e in edges:
        a, b = find(int(e[0])), find(int(e[1]))
        if a == b:
            continue
        if size[a] < size[b]:
            a, b = b, a
        parent[b] = a
        size[a] += size[b]
        merges += 1
    return n - merges, torch.tensor([find(i) for i in range(n)])


def caught(A, b):
    tries = 0
    jitter = 0.0
    while True:
        try:
            L = torch.linalg.cholesky(A + jitter * torch.eye(3))
            break
        except torch._C._LinAlgError as e:
            tries += 1
            jitter = 1e-3 if jitter == 0 else jitter * 10
            if tries > 6:
                raise RuntimeError(f"not PD after {tries} tries") from e
    return torch.cholesky_solve(b[:, None], L).squeeze(1), tries, jitter


SEEN = normal(12) * 2
SEEN[uniform(12) < 0.1] = float("nan")
TWICE = normal(9, 2)
TWICE[:, 1] = TWICE[:, 0]
PLACED = uniform(8, 4)
BOXES = torch.cat([PLACED[..., :2], PLACED[..., :2] + 0.2 + PLACED[..., 2:]], -1)
MATRICES = normal(3, 3)
MATRICES = MATRICES @ MATRICES.mT
MATRICES[3] = -0.05 * torch.eye(3)

PROGRAMS = {
    "gibbs": (gibbs_mixture, [normal(7) * 2, uniform(4, 7)], 0),
    "kalman": (kalman_gated, [SEEN, normal(2)], 0),
    "ransac": (ransac, [normal(10, 2), torch.randint(0, 10, (7, 15, 2), generator=DRAW)], 0),
    "kmeans": (kmeans_empty, [TWICE], 0),
    "dbscan": (dbscan, [normal(10, 2)], 0),
    "matching": (iou_match, [BOXES[:, :5], BOXES[:, 3:]], 0),
    "cart_pole": (cartpole_pid, [normal() * 0.15], 0),
    "advantages": (gae, [normal(10), normal(11), uniform(10) < 0.2], 0),
    "replay": (replay, [uniform(10) + 0.1, uniform(5)], 0),
    "union_find": (union_find, [torch.randint(0, 8, (7, 9, 2), generator=DRAW)], 0),
    "jitter": (caught, [MATRICES, normal(3)], 0),
    "too_much_jitter": (caught, [MATRICES * 1e6, normal(3)], 0),
}
"""The programs by name, with their arguments and ``in_dims``."""
