"""LSTM, GRU and RNN: one example's sequence is one sequence of a batch.

one example               for all threads, batch_first      otherwise
input   [T, F]            [k, T, F]                         [T, k, F]
input   [N, T, F]         [k * N, T, F]                     [T, k * N, F]
hidden  [layers, H]       [layers, k, H]                    the same

Where weights are each thread's own (stacked models), no kernel of torch's does all threads: the map
of the whole sequence is one product, each step another one, and what the gates let through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autobatch.batching.converters.registry import (
    Info,
    event_dim,
    folded,
    register,
    rows,
    unfolded,
)
from autobatch.batching.levels import Batched


@register(nn.LSTM, nn.GRU, nn.RNN)
def recurrent(info: Info, module: nn.RNNBase, input: Any, hx: Any = None) -> Any:
    """A recurrent layer stack over per-thread sequences of one length."""
    hidden = hx if isinstance(hx, tuple) else () if hx is None else (hx,)
    dims = event_dim(input) if isinstance(input, Batched | Tensor) else 0
    if isinstance(module, nn.LSTM) and len(hidden) not in (0, 2):
        return NotImplemented
    if dims not in (2, 3) or any(event_dim(state) != dims for state in hidden):
        return NotImplemented
    if module.training and module.dropout > 0 and module.num_layers > 1:
        info.allow_draws(type(module).__name__)
    batch_dim = 0 if module.batch_first else 1
    states = tuple(_into(state, info.k, dims, 1) for state in hidden)
    given = (states if isinstance(module, nn.LSTM) else states[0]) if states else None
    output, last = module(_into(input, info.k, dims, batch_dim), given)
    back = _out(output, info.k, dims, batch_dim)
    if isinstance(last, tuple):
        return back, tuple(_out(state, info.k, dims, 1) for state in last)
    return back, _out(last, info.k, dims, 1)


@register(nn.LSTMCell, nn.GRUCell, nn.RNNCell)
def cell(info: Info, module: nn.RNNCellBase, input: Any, hx: Any = None) -> Any:
    """One step of a recurrent layer: ``[F]`` and ``[H]`` become ``[k, F]`` and ``[k, H]``."""
    hidden = hx if isinstance(hx, tuple) else () if hx is None else (hx,)
    dims = event_dim(input)
    if dims not in (1, 2) or any(event_dim(state) != dims for state in hidden):
        return NotImplemented
    states = tuple(_merged(rows(state, info.k), dims) for state in hidden)
    given = (states if isinstance(hx, tuple) else states[0]) if states else None
    out = module(_merged(rows(input, info.k), dims), given)
    if isinstance(out, tuple):
        return tuple(_split(state, info.k, dims) for state in out)
    return _split(out, info.k, dims)


def _merged(data: Tensor, dims: int) -> Tensor:
    return data if dims == 1 else data.flatten(0, 1)


def _split(data: Tensor, k: int, dims: int) -> Batched:
    return Batched(data) if dims == 1 else unfolded(data, k)


def _into(value: Any, k: int, dims: int, batch_dim: int) -> Tensor:
    """Threads put where the module has its batch: beside the sequence, or merged with a batch."""
    data = rows(value, k)
    if dims == 2:
        return data.movedim(0, batch_dim)
    return data.movedim(0, batch_dim).flatten(batch_dim, batch_dim + 1)


def _out(data: Tensor, k: int, dims: int, batch_dim: int) -> Batched:
    """The inverse of ``_into``."""
    if dims == 2:
        return Batched(data.movedim(batch_dim, 0))
    split = (k, data.shape[batch_dim] // max(k, 1))
    data = data.reshape((*data.shape[:batch_dim], *split, *data.shape[batch_dim + 1 :]))
    return Batched(data.movedim(batch_dim, 0))


def _register_kernel(function: Any, of_gates: Callable[..., Any]) -> None:
    """The functions that the modules call, for modules within code that runs under vmap."""

    @register(function)
    def kernel(info: Info, input: Any, hx: Any, weights: Any, *settings: Any) -> Any:
        if len(settings) != 6 or event_dim(input) != 3:  # others are packed sequences
            return NotImplemented
        _, layers, dropout, training, _, batch_first = settings
        draws = training and dropout > 0 and layers > 1
        if draws:
            info.allow_draws(function.__name__)
        if not all(isinstance(weight, Tensor) for weight in weights):
            if draws:
                return NotImplemented
            biased, layers, _, _, bidirectional, batch_first = settings
            return stacked(
                info, of_gates, input, hx, weights, biased, layers, bidirectional, batch_first
            )
        batch_dim = 0 if batch_first else 1
        hidden = hx if isinstance(hx, tuple | list) else (hx,)
        states = [_into(state, info.k, 3, 1) for state in hidden]
        given = states if isinstance(hx, tuple | list) else states[0]
        output, *last = function(_into(input, info.k, 3, batch_dim), given, weights, *settings)
        out = _out(output, info.k, 3, batch_dim)
        return (out, *(_out(state, info.k, 3, 1) for state in last))


def stacked(
    info: Info,
    of_gates: Callable[..., Any],
    input: Any,
    hx: Any,
    weights: Sequence[Any],
    biased: bool,
    layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """Layers with weights of each thread's own, step by step: ``[k, T, N, F]`` in each."""
    states = [rows(state, info.k) for state in (hx if isinstance(hx, tuple | list) else (hx,))]
    ways = layers * (2 if bidirectional else 1)
    x = rows(input, info.k)
    x = x.transpose(1, 2) if batch_first else x
    if not fit(x, states, weights, ways, biased):
        return NotImplemented
    each = len(weights) // ways
    last: list[tuple[Tensor, ...]] = []
    for layer in range(layers):
        outs = []
        for way in range(ways // layers):
            place = layer * (ways // layers) + way
            own = Weights.of(weights[place * each : (place + 1) * each], biased)
            before = tuple(state[:, place] for state in states)
            out, after = own.along(info, of_gates, x.flip(1) if way else x, before)
            outs.append(out.flip(1) if way else out)
            last.append(after)
        x = torch.cat(outs, -1) if len(outs) > 1 else outs[0]
    ends = [Batched(torch.stack(parts, 1)) for parts in zip(*last, strict=True)]
    return (Batched(x.transpose(1, 2) if batch_first else x), *ends)


def fit(
    x: Tensor, states: Sequence[Tensor], weights: Sequence[Any], ways: int, biased: bool
) -> bool:
    """Whether these are operands that torch takes: what it refuses is its own to tell."""
    each = 4 if biased else 2
    if len(weights) not in (ways * each, ways * (each + 1)) or x.numel() == 0:
        return False
    if torch.is_autocast_enabled(x.device.type):
        return False
    tensors = [x, *states, *(w.data if type(w) is Batched else w for w in weights)]
    if len({(tensor.dtype, tensor.device) for tensor in tensors}) != 1:
        return False
    return all(state.dim() == 4 and state.shape[1:3] == (ways, x.shape[2]) for state in states)


@dataclass(frozen=True, slots=True)
class Weights:
    """Of one direction of a layer; ``projection`` is what makes the hidden state smaller."""

    of_input: tuple[Any, ...]
    of_hidden: tuple[Any, ...]
    projection: Any = None

    @classmethod
    def of(cls, given: Sequence[Any], biased: bool) -> Weights:
        entry, hidden, *rest = given
        shifts = [(bias,) for bias in rest[:2]] if biased else [(), ()]
        projection = rest[2 if biased else 0 :]
        return cls((entry, *shifts[0]), (hidden, *shifts[1]), *projection)

    def along(
        self, info: Info, of_gates: Callable[..., Any], x: Tensor, states: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The hidden states ``[k, T, N, H]`` of all steps, and what the last leaves."""

        def mapped(data: Tensor, *weights: Any) -> Tensor:
            return rows(info.apply(F.linear, (Batched(data), *weights), None, info.k), info.k)

        made = []
        for step in mapped(x, *self.of_input).unbind(1):
            found = of_gates(step, mapped(states[0], *self.of_hidden), *states)
            states = found if isinstance(found, tuple) else (found,)
            if self.projection is not None:
                states = (mapped(states[0], self.projection), *states[1:])
            made.append(states[0])
        return torch.stack(made, 1), states


def _register_cell_kernel(function: Any, of_gates: Callable[..., Any]) -> None:
    @register(function)
    def kernel(info: Info, input: Any, hx: Any, *weights: Any) -> Any:
        if not all(weight is None or isinstance(weight, Tensor) for weight in weights):
            return by_gates(info, of_gates, input, hx, weights)
        hidden = hx if isinstance(hx, tuple | list) else (hx,)
        states = [folded(state, info.k) for state in hidden]
        given = states if isinstance(hx, tuple | list) else states[0]
        out = function(folded(input, info.k), given, *weights)
        if isinstance(out, tuple):
            return tuple(unfolded(state, info.k) for state in out)
        return unfolded(out, info.k)


def by_gates(
    info: Info, of_gates: Callable[..., Any], input: Any, hx: Any, weights: tuple[Any, ...]
) -> Any:
    """A step with weights of each thread's own: two affine maps, and what the gates let through."""
    of_input, of_hidden, *biases = weights
    shifts = [(bias,) for bias in biases] if None not in biases else [(), ()]
    states = tuple(hx) if isinstance(hx, tuple | list) else (hx,)
    mapped = [
        rows(info.apply(F.linear, (each, weight, *shift), None, info.k), info.k)
        for each, weight, shift in zip(
            (input, states[0]), (of_input, of_hidden), shifts, strict=True
        )
    ]
    out = of_gates(*mapped, *(rows(state, info.k) for state in states))
    return tuple(map(Batched, out)) if isinstance(out, tuple) else Batched(out)


def lstm_gates(x: Tensor, h: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    enter, forget, change, leave = (x + h).chunk(4, -1)
    cell = forget.sigmoid() * cell + enter.sigmoid() * change.tanh()
    return leave.sigmoid() * cell.tanh(), cell


def gru_gates(x: Tensor, h: Tensor, hidden: Tensor) -> Tensor:
    (reset, update, new), (h_reset, h_update, h_new) = x.chunk(3, -1), h.chunk(3, -1)
    made = (new + (reset + h_reset).sigmoid() * h_new).tanh()
    return made + (update + h_update).sigmoid() * (hidden - made)


def tanh_gates(x: Tensor, h: Tensor, _: Tensor) -> Tensor:
    return (x + h).tanh()


def relu_gates(x: Tensor, h: Tensor, _: Tensor) -> Tensor:
    return (x + h).relu()


for _layers, _cell, _gates in (
    (torch.lstm, torch.lstm_cell, lstm_gates),
    (torch.gru, torch.gru_cell, gru_gates),
    (torch.rnn_tanh, torch.rnn_tanh_cell, tanh_gates),
    (torch.rnn_relu, torch.rnn_relu_cell, relu_gates),
):
    _register_kernel(_layers, _gates)
    _register_cell_kernel(_cell, _gates)
