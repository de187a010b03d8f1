"""Sequences, trees and text: each program as public code has it, with the arguments of a batch."""

from __future__ import annotations

import heapq
import itertools
import random

import torch
import torch.nn.functional as F
from torch import nn

import autobatch

DRAW = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(7, *shape, generator=DRAW)


def uniform(*shape):
    return torch.rand(7, *shape, generator=DRAW)


SOME = random.Random(3)
torch.manual_seed(1)


def viterbi(log_emit, log_trans, log_start, beam=8.0):
    T, _K = log_emit.shape
    score = log_start + log_emit[0]
    back = []
    stopped = T
    for t in range(1, T):
        if score.max() < -12.0:
            stopped = t
            break
        cand = score.unsqueeze(1) + log_trans
        best, idx = cand.max(dim=0)
        score = best + log_emit[t]
        score[score < score.max() - beam] = -float("inf")
        back.append(idx)
    state = score.argmax().item()
    path = [state]
    for idx in reversed(back):
        state = idx[state].item()
        path.insert(0, state)
    path += [-1] * (T - len(path))
    return torch.tensor(path), score.max(), stopped


def needleman(s, t, match=1, mismatch=-1, gap=-1):
    n, m = len(s), len(t)
    H = torch.zeros(n + 1, m + 1, dtype=torch.long)
    H[:, 0] = torch.arange(n + 1) * gap
    H[0, :] = torch.arange(m + 1) * gap
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            d = H[i - 1, j - 1] + (match if s[i - 1] == t[j - 1] else mismatch)
            H[i, j] = max(d, H[i - 1, j] + gap, H[i, j - 1] + gap)
    i, j = n, m
    top, bottom = "", ""
    while i > 0 or j > 0:
        if (
            i > 0
            and j > 0
            and H[i, j] == H[i - 1, j - 1] + (match if s[i - 1] == t[j - 1] else mismatch)
        ):
            top, bottom = s[i - 1] + top, t[j - 1] + bottom
            i, j = i - 1, j - 1
        elif i > 0 and H[i, j] == H[i - 1, j] + gap:
            top, bottom = s[i - 1] + top, "-" + bottom
            i -= 1
        else:
            top, bottom = "-" + top, t[j - 1] + bottom
            j -= 1
    return H[n, m], top, bottom


def forward_backward(obs, log_pi, log_A, log_B):
    T = len(obs)
    alpha = [log_pi + log_B[:, obs[0]]]
    for t in range(1, T):
        if obs[t] < 0:
            T = t
            break
        alpha.append(torch.logsumexp(alpha[-1][:, None] + log_A, 0) + log_B[:, obs[t]])
    beta = [torch.zeros_like(log_pi)]
    for t in range(T - 2, -1, -1):
        beta.append(torch.logsumexp(log_A + log_B[:, obs[t + 1]] + beta[-1], dim=1))
    beta.reverse()
    gamma = torch.stack([a + b for a, b in zip(alpha, beta, strict=False)])
    gamma = gamma - torch.logsumexp(gamma, 1, keepdim=True)
    return torch.logsumexp(alpha[-1], 0), gamma.exp().sum(0)


class PointerNet(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.enc = nn.Linear(2, d)
        self.cell = nn.LSTMCell(d, d)
        self.w1 = nn.Linear(d, d, bias=False)
        self.w2 = nn.Linear(d, d, bias=False)
        self.v = nn.Linear(d, 1)

    def forward(self, pts):
        e = torch.tanh(self.enc(pts))
        h = c = torch.zeros(8)
        x = e.mean(0)
        visited = torch.zeros(pts.size(0), dtype=torch.bool)
        tour, logp = [], 0.0
        while not visited.all():
            h, c = self.cell(x, (h, c))
            u = self.v(torch.tanh(self.w1(e) + self.w2(h))).squeeze(-1)
            u[visited] = float("-inf")
            lp = F.log_softmax(u, dim=0)
            i = lp.argmax()
            if lp[i] < -5:
                break
            tour.append(i)
            logp = logp + lp[i]
            visited[i] = True
            x = e[i]
        length = torch.tensor(0.0)
        for a, b in zip(tour, tour[1:] + tour[:1], strict=False):
            length += (pts[a] - pts[b]).norm()
        return length, logp, torch.stack(tour)


class EarlyExit(nn.Module):
    def __init__(self, d=12, L=4):
        super().__init__()
        self.blocks = nn.ModuleList(
            [nn.TransformerEncoderLayer(d, 2, 16, dropout=0.0, batch_first=True) for _ in range(L)]
        )
        self.heads = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 3)) for _ in range(L)
        )
        self.threshold = 0.55

    def forward(self, x):
        for i, (block, head) in enumerate(zip(self.blocks, self.heads, strict=False)):
            x = block(x.unsqueeze(0)).squeeze(0)
            p = head(x.mean(dim=0)).softmax(-1)
            conf, label = p.max(-1)
            if conf > self.threshold:
                return label, conf, i
        return label, conf, len(self.blocks)


class RecNN(nn.Module):
    def __init__(self, V=6, d=6):
        super().__init__()
        self.emb = nn.Embedding(V, d)
        self.compose = nn.ModuleDict(
            {"NP": nn.Linear(2 * d, d), "VP": nn.Linear(2 * d, d), "S": nn.Linear(2 * d, d)}
        )
        self.score = nn.Linear(d, 2)

    def encode(self, node):
        if "word" in node:
            return self.emb(torch.tensor(node["word"]))
        kids = [self.encode(k) for k in node["children"]]
        h = kids[0]
        for k in kids[1:]:
            h = torch.tanh(self.compose[node["label"]](torch.cat([h, k])))
        node_bonus = node.get("weight", 1.0)
        return h * node_bonus

    def forward(self, tree):
        return self.score(self.encode(tree)).log_softmax(-1)


def rtree(r, d=3):
    if d == 0 or r.random() < 0.3:
        return {"word": r.randrange(6)}
    n = {
        "label": r.choice(["NP", "VP", "S"]),
        "children": [rtree(r, d - 1) for _ in range(r.randint(1, 3))],
    }
    if r.random() < 0.3:
        n["weight"] = r.random()
    return n


def bpe(text, merges, emb):
    word = list(text)
    while len(word) > 1:
        pairs = []
        for i, (a, b) in enumerate(itertools.pairwise(word)):
            pairs.append((merges.get((a, b), float("inf")), i))
        rank, i = min(pairs)
        if rank == float("inf"):
            break
        word[i : i + 2] = [word[i] + word[i + 1]]
    ids = torch.tensor([sum(map(ord, w)) % 32 for w in word])
    return emb(ids).mean(0), len(word), "|".join(word)


def huffman(freq):
    [[f.item(), i, ""] for i, f in enumerate(freq)]
    [[f, [i]] for i, f in enumerate(freq.tolist())]
    codes = dict.fromkeys(range(len(freq)), "")
    h = [(f, i, [i]) for i, f in enumerate(freq.tolist())]
    heapq.heapify(h)
    n = len(h)
    while len(h) > 1:
        f1, _, a = heapq.heappop(h)
        f2, _, b = heapq.heappop(h)
        for s in a:
            codes[s] = "0" + codes[s]
        for s in b:
            codes[s] = "1" + codes[s]
        heapq.heappush(h, (f1 + f2, n, a + b))
        n += 1
    lengths = torch.tensor([len(codes[i]) for i in range(len(freq))])
    return (freq * lengths).sum(), lengths


def lz_decompress(codes):
    table = {i: chr(97 + i) for i in range(4)}
    out = ""
    prev = None
    for c in codes.tolist():
        if prev is None:
            entry = table[c % 4]
        elif c in table:
            entry = table[c]
            table[len(table)] = prev + entry[0]
        elif c == len(table):
            entry = prev + prev[0]
            table[len(table)] = entry
        else:
            raise ValueError(f"bad code {c}")
        out += entry
        prev = entry
    return out, len(out)


def accumulate_parts(x):
    total = x.new_zeros(())
    parts = {"big": [], "small": []}
    for v in x.unbind():
        parts["big" if v.abs() > 1 else "small"].append(v)
    for _name, vs in parts.items():
        if vs:
            total += torch.stack(vs).prod()
    return total, len(parts["big"])


def drawn(letters, most):
    return autobatch.objects(
        ["".join(SOME.choice(letters) for _ in range(SOME.randint(1, most))) for _ in range(7)]
    )


STATES = normal(4, 4)[0].log_softmax(-1)
OBSERVED = torch.randint(0, 5, (7, 8), generator=DRAW)
for row in range(7):
    OBSERVED[row, 1 + row :] = -1
MERGES = {("a", "b"): 0, ("ab", "a"): 1, ("c", "a"): 2, ("ab", "c"): 3, ("b", "b"): 4}
MODEL = (
    normal(3)[0].log_softmax(0),
    normal(3, 3)[0].log_softmax(1),
    normal(3, 5)[0].log_softmax(1),
)
CODES = torch.randint(0, 4, (7, 6), generator=DRAW)
CODES[:, 2], CODES[:, 4] = 4, 5

PROGRAMS = {
    "viterbi": (viterbi, [normal(9, 4).log_softmax(-1), STATES, STATES[0]], (0, None, None)),
    "needleman": (needleman, [drawn("ACGT", 6), drawn("ACGT", 6)], 0),
    "forward_backward": (forward_backward, [OBSERVED, *MODEL], (0, None, None, None)),
    "pointer_net": (PointerNet().requires_grad_(False), [uniform(6, 2)], 0),
    "early_exit": (EarlyExit().eval().requires_grad_(False), [normal(5, 12)], 0),
    "recursive": (RecNN(), [autobatch.objects([rtree(SOME) for _ in range(7)])], 0),
    "pieces": (bpe, [drawn("abc", 9), MERGES, nn.Embedding(32, 4)], (0, None, None)),
    "huffman": (huffman, [torch.randint(1, 100, (7, 8), generator=DRAW)], 0),
    "decompress": (lz_decompress, [CODES], 0),
    "bad_code": (lz_decompress, [torch.randint(0, 7, (7, 6), generator=DRAW)], 0),
    "lists_in_a_dict": (accumulate_parts, [normal(6) * 1.3], 0),
}
"""The programs by name, with their arguments and ``in_dims``."""
