"""A graph of aten's operators in machine code: each node by its rule."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.fx import Node
from torch.utils import _pytree as pytree

from autobatch.compiled import tensors
from autobatch.compiled.arrays import (
    draws,
    elementwise,
    extremes,
    picking,
    products,
    reductions,
    views,
)
from autobatch.compiled.arrays.graph import TENSOR, Traced
from autobatch.compiled.arrays.graph import draws as draws_at_random
from autobatch.compiled.arrays.mapping import mapped
from autobatch.compiled.arrays.memory import (
    Operand,
    Strided,
    copied,
    is_contiguous,
    noted,
    strided,
)
from autobatch.compiled.machine import to_int64, widened
from autobatch.compiled.types import (
    FLOATS,
    INTS,
    MACHINE,
    Array,
    Rows,
    Scalar,
    Static,
    Type,
    Value,
    fresh,
    number,
    refuse,
    structure,
)
from autobatch.compiled.writer import Writer
from autobatch.llvm import literal

C_CALL = 7
"""Nanoseconds by which a function of the C library's is slower than torch's, of many elements."""


class Tensors(Protocol):
    """Where real tensors that a graph reads are guarded and kept alive."""

    def tensor(self, tensor: Tensor, name: str) -> Tensor: ...


def lowered(w: Writer, traced: Traced, args: Sequence[Value], names: Tensors) -> Value:
    """What a graph gives of its tensor arguments."""
    return Lowering(w, names, args).run(traced)


class Lowering:
    def __init__(self, w: Writer, names: Tensors, args: Sequence[Value]) -> None:
        self.w = w
        self.names = names
        self.args = args
        self.found: dict[Node, Any] = {}

    def run(self, traced: Traced) -> Value:
        w, args = self.w, iter(self.args)
        outs: list[Any] = []
        for node in traced.graph.graph.nodes:
            if node.op == "placeholder":
                self.found[node] = strided(next(args))
            elif node.op == "get_attr":
                self.found[node] = self.real(getattr(traced.graph, node.target))
            elif node.op == "output":
                outs = list(node.args[0])
            else:
                self.found[node] = self.computed(node)
        given = {w.root(leaf): arg.type for arg in self.args for leaf in arg.leaves}
        results = iter(
            kept(w, out, given.get(w.root(out.leaf)), strides)
            for out, strides in zip(
                map(self.found.__getitem__, outs), map(strides_of, outs), strict=True
            )
        )
        leaves = [next(results) if fixed is TENSOR else known(fixed) for fixed in traced.fixed]
        return built(traced.tree, leaves)

    def real(self, tensor: Tensor) -> Operand:
        """A tensor from outside, which is read where it lies."""
        self.w.held.append(tensor)
        return strided(real(self.w, self.names.tensor(tensor, "a tensor that it reads")))

    def computed(self, node: Node) -> Any:
        if node.target is operator.getitem:
            source, at = node.args
            return self.found[source][at]  # type: ignore[index]
        args = pytree.tree_map_only(Node, self.found.__getitem__, tuple(node.args))
        kwargs = dict(node.kwargs)
        name, meta = str(node.target), node.meta.get("val")
        if self.w.seeded and name in draws.RULES and isinstance(meta, Tensor):
            return draws.RULES[name](self.w, meta, *args, **kwargs)
        if not any(isinstance(leaf, Strided | Value) for leaf in pytree.tree_leaves(args)):
            return self.constant(node)
        if any(isinstance(value, Node) for value in kwargs.values()):
            refuse(f"{name} has no compiled form")
        if name == "aten.full_like.default" and isinstance(meta, Tensor):
            return filled(self.w, meta, args[1])
        if name in views.MANY:
            return views.MANY[name](self.w, shapes_of(meta), *args, **kwargs)
        if name in extremes.MANY:
            return extremes.MANY[name](self.w, shapes_of(meta), *args, **kwargs)
        if not isinstance(meta, Tensor) or meta.device.type != "cpu" or meta.dtype not in MACHINE:
            return refuse(f"{name} has no compiled form")
        shape = tuple(meta.shape)
        if not prod(shape):
            refuse("a tensor has no elements")
        if name in views.RULES:
            return views.RULES[name](self.w, shape, *args, **kwargs)
        for rules in (reductions.RULES, extremes.RULES, products.RULES, picking.RULES):
            if name in rules:
                kwargs.pop("dtype", None)
                return rules[name](self.w, shape, meta.dtype, *args, **kwargs)
        return self.elementwise(node, name, args, kwargs)

    def constant(self, node: Node) -> Operand:
        """What is made of no tensor is made now."""
        target: Any = node.target
        if draws_at_random(node):
            refuse(f"{target} draws at random")
        with torch.no_grad():
            made = target(*node.args, **node.kwargs)
        if not isinstance(made, Tensor) or made.device.type != "cpu" or not made.numel():
            return refuse(f"{target} has no compiled form")
        if not made.dim() and made.dtype in MACHINE:
            return Value(Scalar(made.dtype), (literal(made.item(), MACHINE[made.dtype]),))
        self.w.held.append(made.contiguous())
        found = strided(real(self.w, self.w.held[-1]))
        return copied(self.w, found) if isinstance(found, Strided) else found

    def elementwise(
        self, node: Node, name: str, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Operand:
        meta = node.meta["val"]
        many = meta.numel() != 1 or meta.dim() > 0
        shape = tuple(meta.shape)
        rule = where if name == "aten.where.self" else elementwise.RULES.get(name)
        if name.startswith("aten.sub.") and any(map(is_bool, node.args)):
            refuse("the operator sub is an error for tensors with bools")
        alpha = kwargs.pop("alpha", 1)
        mode = kwargs.pop("rounding_mode", None)
        if mode is not None:
            rule = elementwise.ROUNDED.get(mode)
        for word in ("dtype", "layout", "device", "pin_memory", "non_blocking", "memory_format"):
            kwargs.pop(word, None)
        if rule is None or kwargs:
            refuse(f"{name} has no compiled form")
        dtype = meta.dtype
        if dtype is torch.bool:
            dtype = met(node.args)
        if name == "aten._to_copy.default":
            args = args[:1]
        elif name == "aten.copy.default":
            args = args[1:2]
        if name in elementwise.IN_C and many:
            self.w.cost += C_CALL * meta.numel()
        operands = [number(arg) if isinstance(arg, int | float) else arg for arg in args]
        if any(not isinstance(each, Strided | Value) for each in operands):
            refuse(f"{name} has no compiled form")
        if alpha != 1:
            operands[1] = self.scaled(operands[1], alpha, dtype)

        def at(values: Sequence[Value]) -> Value:
            if name == "aten.where.self":
                given = [values[0], *(self.cast(each, dtype) for each in values[1:])]
            else:
                given = [self.cast(each, dtype) for each in values]
            made = rule(self.w, given)
            return self.cast(made, meta.dtype)

        return mapped(self.w, shape if many else (), meta.dtype, operands, at)

    def scaled(self, x: Operand, alpha: float, dtype: torch.dtype) -> Operand:
        factor = number(alpha)
        shape = x.shape if isinstance(x, Strided) else ()

        def at(values: Sequence[Value]) -> Value:
            one, by = (self.cast(each, dtype) for each in values)
            return tensors.binary(self.w, "mul", one, by)

        return mapped(self.w, shape, dtype, [x, factor], at)

    def cast(self, x: Value, dtype: torch.dtype) -> Value:
        """A number keeps what is known of it, for powers."""
        w = self.w
        source = x.type.dtype if isinstance(x.type, Scalar) else None
        if source in FLOATS and dtype in INTS:
            whole = to_int64(w, MACHINE[source], x.leaf)
            return Value(Scalar(dtype), (widened(w, whole, "i64", MACHINE[dtype]),))
        leaf = tensors.cast(w, x, dtype)
        return Value(Scalar(dtype), (leaf,), x.known)


def strides_of(out: Node) -> tuple[int, ...] | None:
    """What torch has a result's strides be."""
    meta = out.meta["val"]
    return noted(tuple(meta.shape), meta.stride())


def kept(w: Writer, out: Operand, source: Type | None, strides: tuple[int, ...] | None) -> Value:
    """A result as a variable may hold it; ``source`` is the argument that it is a view of.

    A view of what stays as it is remains one. A view of an array is copied where its elements lie
    apart, and has its root: it is the same tensor's memory.
    """
    if not isinstance(out, Strided):
        viewed = out.leaf in w.roots or isinstance(source, Scalar)
        return out if viewed else fresh(out)
    root = w.root(out.leaf)
    if isinstance(source, Rows) or (source is None and root not in w.exclusive):
        lent = isinstance(source, Rows) and source.lent
        steps = noted(out.shape, out.strides)
        return Value(Rows(out.dtype, out.shape, lent, strides, steps), (out.leaf,))
    if not is_contiguous(out):
        out = copied(w, out)
        w.roots[out.leaf] = root
    return Value(Array(out.dtype, out.shape, strides=strides), (out.leaf,))


def filled(w: Writer, meta: Tensor, value: float) -> Operand:
    if type(value) is float and not meta.is_floating_point():  # without its fraction
        value = torch.full((), value, dtype=meta.dtype, device="cpu").item()
    one = Value(Scalar(meta.dtype), (tensors.cast(w, number(value), meta.dtype),))
    return mapped(w, tuple(meta.shape), meta.dtype, [one], lambda values: values[0])


def real(w: Writer, data: Tensor) -> Value:
    """A tensor whose memory is there for as long as the machine code is."""
    leaf = f"inttoptr (i64 {data.data_ptr()} to ptr)"
    if data.dim():
        shape = tuple(data.shape)
        strides = noted(shape, data.stride())
        return Value(Rows(data.dtype, shape, False, strides, strides), (leaf,))
    return Value(Scalar(data.dtype), (tensors.loaded(w, MACHINE[data.dtype], leaf),))


def known(obj: Any) -> Value:
    """A result that is no tensor: a number, a size, None."""
    if type(obj) in (int, float, bool):
        return number(obj)
    if isinstance(obj, torch.Size):
        return structure(tuple, [number(size) for size in obj])
    return Value(Static(obj))


def built(tree: pytree.TreeSpec, leaves: Sequence[Value]) -> Value:
    """A result as it is held."""
    if tree.is_leaf():
        return leaves[0]
    if not issubclass(tree.type, tuple | list):
        return refuse("it returns neither tensors nor tuples or lists of tensors")
    parts: list[Value] = []
    at = 0
    for child in tree.children():
        parts.append(built(child, leaves[at : at + child.num_leaves]))
        at += child.num_leaves
    return structure(tree.type, parts)


def met(args: Any) -> torch.dtype:
    """The dtype in which operands meet."""
    given = [arg.meta["val"] if isinstance(arg, Node) else arg for arg in args]
    first, *others = [x for x in given if isinstance(x, Tensor | int | float)]
    if not others:
        return first.dtype if isinstance(first, Tensor) else refuse("numbers alone")
    dtype = torch.result_type(first, others[0])
    return dtype if dtype in MACHINE else refuse(f"a tensor has the dtype {dtype}")


def is_bool(arg: Any) -> bool:
    return isinstance(arg, bool) or (
        isinstance(arg, Node) and getattr(arg.meta.get("val"), "dtype", None) is torch.bool
    )


def shapes_of(meta: Any) -> list[tuple[int, ...]]:
    return [tuple(each.shape) for each in meta]


def where(w: Writer, args: Sequence[Value]) -> Value:
    condition, a, b = args
    machine = MACHINE[elementwise.dtype_of(a)]
    return Value(a.type, (w.select(tensors.truth(w, condition), machine, a.leaf, b.leaf),))
