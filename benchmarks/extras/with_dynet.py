"""Native DyNet with its automatic batching (Neubig, Goldberg & Dyer 2017).

A run builds the graph of the whole batch, node by node, as DyNet's users do, and computes it;
where a value decides what comes next, the graphs of all examples grow by a step, and are computed
up to there together. Parameters are copied from the torch model when the problem is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dynet_config
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.workload import Other, Problem
from programs.treelstm import Tree

dynet_config.set(mem=4096, autobatch=1, random_seed=1)  # MiB; with batching it does not grow

import dynet as dy  # noqa: E402  (what is configured must be so before)

Node = Any
Outputs = list[list[Node]]
"""For each leaf of the result, a node for each example."""


@dataclass(slots=True)
class Model:
    """The parameters of a torch module, in DyNet, in the order of ``problem.parameters``.

    An embedding becomes lookup parameters: a node reads one row of it.
    """

    own: list[Any]
    of: dict[int, Any]
    collection: Any  # DyNet frees the parameters with it

    @staticmethod
    def of_problem(problem: Problem) -> Model:
        module, collection = problem.function, dy.ParameterCollection()
        assert isinstance(module, nn.Module)
        tables = {id(m.weight) for m in module.modules() if isinstance(m, nn.Embedding)}
        own = []
        for parameter in problem.parameters:
            values = parameter.detach().numpy()
            if id(parameter) in tables:
                made = collection.lookup_parameters_from_numpy(values)
            else:
                made = collection.parameters_from_numpy(values)
            own.append(made)
        ids = map(id, problem.parameters)
        return Model(own, dict(zip(ids, own, strict=True)), collection)

    def __getitem__(self, parameter: Tensor) -> Any:
        return self.of[id(parameter)]

    def gradients(self) -> list[Tensor]:
        return [torch.from_numpy(each.grad_as_array().astype(np.float32)) for each in self.own]

    def affine(self, layer: nn.Linear | tuple[Tensor, Tensor]) -> Callable[[Node], Node]:
        weight, bias = layer if isinstance(layer, tuple) else (layer.weight, layer.bias)
        return lambda x: dy.affine_transform([self[bias], self[weight], x])


def treelstm(problem: Problem, model: Model) -> Outputs:
    net: Any = problem.function
    size = net.zero.shape[0]
    gates_of, table = model.affine(net.gates), model[net.embedding.weight]
    none = dy.zeros(size)

    def encode(tree: Tree | None) -> tuple[Node, Node]:
        if tree is None:
            return none, none
        (left_h, left_c), (right_h, right_c) = encode(tree.left), encode(tree.right)
        gates = table[tree.label] + gates_of(dy.concatenate([left_h, right_h]))
        new, left, right, out, update = (
            dy.pick_range(gates, i * size, (i + 1) * size) for i in range(5)
        )
        c = dy.cmult(dy.logistic(new), dy.tanh(update))
        c = c + dy.cmult(dy.logistic(left), left_c) + dy.cmult(dy.logistic(right), right_c)
        return dy.cmult(dy.logistic(out), dy.tanh(c)), c

    states = [encode(tree) for tree in problem.inputs[0]]
    return [list(leaf) for leaf in zip(*states, strict=True)]


def lstm(problem: Problem, model: Model) -> Outputs:
    cell: Any = problem.function.cell  # type: ignore[attr-defined]
    size = cell.hidden_size
    weights = [model[p] for p in (cell.bias_ih, cell.weight_ih, cell.bias_hh, cell.weight_hh)]
    rows, lengths = problem.inputs
    assert isinstance(rows, Tensor) and isinstance(lengths, Tensor)
    none = dy.zeros(size)

    def encode(x: Any, length: int) -> Node:
        h = c = none
        for t in range(length):
            bias, weight, bias_h, weight_h = weights
            gates = dy.affine_transform([bias, weight, dy.inputTensor(x[t]), weight_h, h]) + bias_h
            new, keep, update, out = (
                dy.pick_range(gates, i * size, (i + 1) * size) for i in range(4)
            )
            c = dy.cmult(dy.logistic(keep), c) + dy.cmult(dy.logistic(new), dy.tanh(update))
            h = dy.cmult(dy.logistic(out), dy.tanh(c))
        return h

    pairs = zip(rows.numpy(), lengths.tolist(), strict=True)
    return [[encode(x, length) for x, length in pairs]]


def linear(problem: Problem, model: Model) -> Outputs:
    layer = problem.function
    assert isinstance(layer, nn.Linear)
    apply = model.affine(layer)
    return [[apply(dy.inputTensor(x)) for x in _numpy(problem)]]


def value_loop(problem: Problem, model: Model) -> Outputs:
    net: Any = problem.function
    weight, probe = model[net.weight], model[net.probe]
    drives = [dy.inputTensor(x) * 0.1 for x in _numpy(problem)]
    ends = [dy.inputTensor(x) for x in _numpy(problem)]
    running = list(range(len(ends)))
    for _ in range(net.most):
        for i in running:
            ends[i] = dy.tanh(weight * ends[i] + drives[i])
        sums = [dy.dot_product(probe, ends[i]) for i in running]
        dy.forward(sums)
        running = [i for i, each in zip(running, sums, strict=True) if each.value() <= net.limit]
        if not running:
            break
    return [ends]


def _numpy(problem: Problem) -> Any:
    rows = problem.inputs[0]
    assert isinstance(rows, Tensor)
    return rows.numpy()


def _run(
    build: Callable[[Problem, Model], Outputs], structure: Callable[[Sequence[Tensor]], Any]
) -> Callable[[Problem], Other]:
    def run(problem: Problem) -> Other:
        model = Model.of_problem(problem)

        def call() -> Any:
            dy.renew_cg()
            outputs = build(problem, model)
            dy.forward([node for nodes in outputs for node in nodes])
            leaves = [
                np.stack([node.npvalue() for node in nodes]).astype(np.float32) for nodes in outputs
            ]
            return structure([torch.from_numpy(leaf) for leaf in leaves])

        def train() -> list[Tensor]:
            dy.renew_cg()
            outputs = build(problem, model)
            losses = []
            for nodes in outputs:
                size = nodes[0].dim()[0][0]
                weights = dy.inputTensor(np.linspace(0.5, 1.5, size))
                losses += [dy.dot_product(node, weights) for node in nodes]
            dy.esum(losses).backward()
            return model.gradients()

        return Other(call, train)

    return run


RUNS: dict[str, Callable[[Problem], Other]] = {
    "treelstm_128": _run(treelstm, tuple),
    "treelstm_256": _run(treelstm, tuple),
    "syntax_trees": _run(treelstm, tuple),
    "lstm": _run(lstm, lambda leaves: leaves[0]),
    "linear": _run(linear, lambda leaves: leaves[0]),
    "value_loop": _run(value_loop, lambda leaves: leaves[0]),
}
