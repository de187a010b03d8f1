"""Converters against the loop over examples: layers, attention, losses, and what vmap refuses."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import autobatch
from autobatch.batching.applying.vmapped import Batched, DrawError, NoRule, apply
from autobatch.batching.converters import find, register
from tests.batched_loop import check

K = 3


def column(*event: int) -> Batched:
    return Batched(torch.randn(K, *event))


def same_as_loop(fn: Any, *args: Any, **kwargs: Any) -> Any:
    got = apply(fn, args, kwargs, K)
    check(got, fn, args, kwargs, K)
    return got


@pytest.mark.parametrize("affine", ["all threads'", "its own", "a bias", "none"])
def test_group_norm_wherever_the_channels_are(affine: str) -> None:
    """vmap cannot tell whether rows are contiguous with their channels last."""
    one = torch.rand(4)
    given: dict[str, Any] = {
        "all threads'": {"weight": one, "bias": torch.rand(4)},
        "its own": {"weight": column(4), "bias": one},
        "a bias": {"bias": column(4)},
        "none": {},
    }[affine]
    images = torch.randn(K, 2, 5, 6, 4).permute(0, 1, 4, 2, 3)
    for x in (images, images[..., ::2], images[:, :1], images[..., 0]):
        same_as_loop(F.group_norm, Batched(x), 2, **given)
    same_as_loop(nn.GroupNorm(2, 4), Batched(images))


LAYERS = [nn.LSTM, nn.GRU, nn.RNN]
CELLS = [nn.LSTMCell, nn.GRUCell, nn.RNNCell]
SHAPES = [(6, 8), (2, 6, 8), (2, 2, 6, 8)]


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_layers(kind: Any, batch_first: bool, bidirectional: bool) -> None:
    layer = kind(3, 5, 2, batch_first=batch_first, bidirectional=bidirectional)
    states = 4 if bidirectional else 2
    first, second = column(states, 5), torch.randn(states, 5)
    hidden = (first, second) if kind is nn.LSTM else first
    same_as_loop(layer, column(7, 3))
    same_as_loop(layer, column(4, 7, 3))
    same_as_loop(layer, column(7, 3), hidden)
    same_as_loop(layer, torch.randn(7, 3), hidden)


@pytest.mark.parametrize("kind", CELLS)
def test_recurrent_cells(kind: Any) -> None:
    cell = kind(3, 5)
    hidden = (column(5), torch.randn(5)) if kind is nn.LSTMCell else column(5)
    same_as_loop(cell, column(3))
    same_as_loop(cell, column(2, 3))
    same_as_loop(cell, column(3), hidden)
    same_as_loop(cell, torch.randn(3), hidden)


@pytest.mark.parametrize("shape", SHAPES)
def test_scaled_dot_product_attention(shape: tuple[int, ...]) -> None:
    q, k, v = column(*shape), column(*shape), torch.randn(*shape)
    attend = F.scaled_dot_product_attention
    same_as_loop(attend, q, k, v)
    same_as_loop(attend, q, k, v, is_causal=True, scale=0.3)
    same_as_loop(attend, q, k, v, torch.rand(6, 6) > 0.3)
    same_as_loop(attend, q, k, v, column(6, 6))
    if len(shape) == 4:
        same_as_loop(attend, q, k, v, torch.randn(2, 1, 6, 6))
        same_as_loop(attend, q, k, v, column(2, 1, 6, 6))


@pytest.mark.parametrize("batch_first", [False, True])
def test_multihead_attention(batch_first: bool) -> None:
    module = nn.MultiheadAttention(8, 2, batch_first=batch_first)
    x, own = column(6, 8), column(2, 6, 8)
    same_as_loop(module, x, x, x)
    same_as_loop(module, own, own, own)
    same_as_loop(module, x, column(5, 8), column(5, 8), need_weights=False)
    same_as_loop(module, x, x, x, attn_mask=torch.randn(6, 6))
    same_as_loop(module, x, x, x, attn_mask=column(6, 6))
    padded = Batched(torch.arange(6) > torch.arange(3, 6).unsqueeze(1))
    same_as_loop(module, x, x, x, key_padding_mask=padded)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_transformer_layers(batch_first: bool, norm_first: bool, grad: bool) -> None:
    how = {"batch_first": batch_first, "norm_first": norm_first}
    with torch.set_grad_enabled(grad):
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, **how).eval()
        causal = nn.Transformer.generate_square_subsequent_mask(6)
        same_as_loop(layer, column(6, 8))
        same_as_loop(layer, column(2, 6, 8))
        same_as_loop(layer, column(6, 8), src_mask=torch.randn(6, 6))
        encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        same_as_loop(encoder, column(6, 8), mask=causal)
        decoding = nn.TransformerDecoderLayer(8, 2, 16, 0.0, **how).eval()
        same_as_loop(decoding, column(6, 8), column(5, 8), tgt_mask=causal)
        same_as_loop(nn.TransformerDecoder(decoding, 2), column(6, 8), column(5, 8))
        whole = nn.Transformer(8, 2, 1, 1, 16, 0.0, **how).eval()
        same_as_loop(whole, column(6, 8), column(5, 8))


class Composed(nn.Module):
    """Layers without a vmap rule inside a module that runs under vmap as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.cell = nn.LSTMCell(3, 4)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0)
        self.attention = nn.MultiheadAttention(8, 2)

    def forward(self, x: Tensor, y: Tensor) -> Any:
        sequence, _ = self.lstm(x)
        hidden, memory = self.cell(x[0])
        z = self.layer(y)
        return sequence, hidden, memory, z, self.attention(z, z, z)[0]


@pytest.mark.parametrize("grad", [False, True])
def test_layers_inside_a_composed_module(grad: bool) -> None:
    with torch.set_grad_enabled(grad):
        same_as_loop(Composed().eval(), column(5, 3), column(6, 8))
        same_as_loop(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)), column(3))


def test_gradients_are_the_loops() -> None:
    torch.manual_seed(0)
    modules = [
        (nn.LSTM(3, 4), (5, 3)),
        (nn.GRUCell(3, 4), (3,)),
        (nn.TransformerEncoderLayer(8, 2, 16, 0.0), (6, 8)),
        (nn.Linear(3, 2), (3,)),
    ]
    for module, shape in modules:
        x = torch.randn(K, *shape, requires_grad=True)
        first = apply(module, (Batched(x),), None, K)
        batched = first[0].data if isinstance(first, tuple) else first.data
        rows = [module(row) for row in x]
        looped = torch.stack([row[0] if isinstance(row, tuple) else row for row in rows])
        wanted = torch.autograd.grad(looped.square().sum(), [x, *module.parameters()])
        got = torch.autograd.grad(batched.square().sum(), [x, *module.parameters()])
        for mine, theirs in zip(got, wanted, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_products_with_a_shared_matrix_lie_row_by_row() -> None:
    w, h = torch.randn(4, 3), column(3)
    for fn, args in (
        (operator.matmul, (w, h)),
        (torch.mv, (w, h)),
        (operator.matmul, (h, w.t())),
        (F.linear, (h, w, torch.randn(4))),
        (F.linear, (column(5, 3), w)),
        (torch.addmv, (torch.randn(4), w, h)),
        (torch.addmv, (column(4), w, h)),
        (operator.matmul, (w, column(3, 2))),
        (operator.matmul, (column(4, 3), h)),
    ):
        assert same_as_loop(fn, *args).data.is_contiguous()


def test_losses_and_short_forms() -> None:
    x, y = column(4), column(4)
    for reduction in ("mean", "sum", "none"):
        same_as_loop(F.kl_div, x, Batched(y.data.softmax(1)), reduction=reduction)
        same_as_loop(F.soft_margin_loss, x, Batched(y.data.sign()), reduction=reduction)
        same_as_loop(F.multi_margin_loss, x, Batched(torch.arange(K)), reduction=reduction)
        same_as_loop(F.triplet_margin_loss, x, y, torch.randn(4), reduction=reduction)
        probs = Batched(torch.randn(K, 9, 5).log_softmax(2))
        labels = Batched(torch.randint(1, 5, (K, 3)))
        lengths = Batched(torch.tensor([9, 8, 7]))
        same_as_loop(F.ctc_loss, probs, labels, lengths, torch.tensor(3), reduction=reduction)
    same_as_loop(torch.isclose, x, y.data[0])
    same_as_loop(torch.isin, Batched(torch.arange(9).reshape(K, 3)), torch.tensor([2, 5]))
    same_as_loop(torch.quantile, column(4, 5), torch.tensor([0.2, 0.7]), 1)
    same_as_loop(torch.quantile, column(4, 5), 0.5, keepdim=True)
    same_as_loop(torch.masked_fill, x, Batched(y.data > 0), Batched(torch.randn(K)))
    same_as_loop(torch.narrow, column(2, 6), 1, Batched(torch.tensor([0, 3, -2])), 2)
    same_as_loop(F.embedding_bag, Batched(torch.randint(0, 9, (K, 2, 4))), torch.randn(9, 3))
    same_as_loop(F.interpolate, column(2, 3, 8), 5, mode="nearest-exact")
    same_as_loop(F.one_hot, Batched(torch.tensor([0, 2, 1])), 4)
    same_as_loop(torch.linalg.lu, column(3, 3))


def test_draws_in_converted_layers_follow_the_randomness_option() -> None:
    layer, x = nn.TransformerEncoderLayer(8, 2, 16, 0.5), column(6, 8)
    with pytest.raises(DrawError, match="TransformerEncoderLayer"):
        apply(layer, (x,), None, K)
    assert apply(layer, (x,), None, K, randomness="different").data.shape == (K, 6, 8)
    with pytest.raises(DrawError):
        apply(F.scaled_dot_product_attention, (x, x, x), {"dropout_p": 0.5}, K)


def test_what_has_no_batched_form_says_so() -> None:
    for fn, args in (
        (torch.bincount, (Batched(torch.randint(0, 5, (K, 4))),)),
        (torch.histc, (column(4),)),
        (torch.index_fill, (column(4), 0, torch.tensor([1]), Batched(torch.rand(K)))),
        (F.one_hot, (Batched(torch.tensor([0, 2, 1])),)),
    ):
        with pytest.raises(NoRule):
            apply(fn, args, None, K)


def test_a_hook_is_not_passed_by() -> None:
    layer = nn.LSTMCell(3, 4)
    assert find(layer) is not None
    layer.register_forward_hook(lambda *args: None)
    assert find(layer) is None


def test_a_rule_can_be_added() -> None:
    def doubled(x: Tensor) -> Tensor:
        raise AssertionError("the rule runs instead")

    @register(doubled)
    def rule(info: Any, x: Any) -> Any:
        return Batched(x.data * 2) if info.k == K else NotImplemented

    x = column(2)
    assert torch.equal(apply(doubled, (x,), None, K).data, x.data * 2)


def test_an_encoder_layer_is_recorded_as_batched_kernels() -> None:
    """No loop over the rows: the recording is short, and as long for any batch."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True).eval()

    def run(x: Tensor) -> Tensor:
        return apply(layer, (Batched(x),), None, x.shape[0]).data

    with torch.no_grad():
        graphs = [make_fx(run)(torch.rand(k, 6, 64)) for k in (2, 5)]
        lengths = {len(graph.graph.nodes) for graph in graphs}
        assert len(lengths) == 1 and max(lengths) < 100
        x = torch.rand(5, 6, 64)
        torch.testing.assert_close(graphs[1](x), run(x))


LOOKED_UP = {
    "one_hot": lambda i, x: F.one_hot(i, 5) * x,
    "embedding": lambda i, x: F.embedding(i, x.reshape(5, 1)),
    "index_fill": lambda i, x: x.index_fill(0, i.reshape(1), 1.0),
    "index_fill_": lambda i, x: x.index_fill_(0, i.reshape(1), 1.0),
}
WAYS = ({}, {"executor": "vmap"}, {"trace_after": 0}, {"engine": "program_counter"})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", LOOKED_UP)
@pytest.mark.parametrize("wrong", [7, -7])
def test_a_place_out_of_range_is_the_loops_error(name: str, wrong: int) -> None:
    func, xs = LOOKED_UP[name], torch.rand(3, 5)
    fine, bad = torch.tensor([4, 4, 4]), torch.tensor([4, wrong, 4])
    with pytest.raises((RuntimeError, IndexError)) as alone:
        func(bad[1], xs[1].clone())
    expected = torch.stack([func(i, x.clone()) for i, x in zip(fine, xs, strict=True)])
    for way in (*WAYS, {"executor": "compiled"}):
        mapped = autobatch.vmap(func, **way)
        torch.testing.assert_close(mapped(fine, xs), expected)
        with pytest.raises(type(alone.value)) as together:
            mapped(bad, xs)
        assert str(together.value).splitlines()[0] == str(alone.value).splitlines()[0]
