"""Which objects an expression may give that existed before: the items of a list of modules, say.

    for layer in self.layers:                  for a, b in zip(self.left, self.right):
        h = layer(h)                               h = a(h) + b(h)
    h = self.layers[i](h)                      h = self.experts["small"](h)

A call of one of them has the shape of a call that any of them is: where all stay in their block, as
torch's modules do, so does the call. As everywhere in lowering only the shape follows: what is
called is looked up when the program runs, and may be something else by then.

In: the expression, and what the names of loops stand for. Out: the objects, none if it is not one.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from autobatch.frontend.resolve import MISSING, members

Static = Callable[[ast.expr], object]
Drawn = dict[str, Sequence[object]]
"""What the names that loops assign may stand for."""


def draw(drawn: Drawn, static: Static, target: ast.expr, source: ast.expr) -> None:
    """Note what a loop over ``source`` assigns to the names of its ``target``."""
    match target, source:
        case ast.Name(name), _:
            drawn[name] = items_of(static, source)
        case ast.Tuple(elts=[_, item]), ast.Call(func, [items, *_]) if static(func) is enumerate:
            draw(drawn, static, item, items)
        case ast.Tuple(elts=[_, item]), ast.Call(ast.Attribute(base, "items"), [], []):
            draw(drawn, static, item, base)
        case ast.Tuple(elts=parts), ast.Call(func, sources, _) if static(func) is zip:
            for part, each in zip(parts, sources, strict=False):
                draw(drawn, static, part, each)


def items_of(static: Static, source: ast.expr) -> Sequence[object]:
    """What iteration over an expression, or an index into it, may give."""
    match source:
        case ast.Call(func, [items], []) if static(func) is reversed:
            return items_of(static, items)
        case ast.Call(ast.Attribute(base, "values"), [], []) if static(base) is not MISSING:
            return members(static(base))
        case ast.Subscript(base, ast.Slice()):
            return items_of(static, base)
    return members(static(source))


def one_of(drawn: Drawn, static: Static, node: ast.expr) -> Sequence[object]:
    """The objects one of which an expression gives, as far as they are known."""
    match node:
        case ast.Name(name):
            return drawn.get(name, ())
        case ast.Subscript(base, index) if not isinstance(index, ast.Slice):
            return items_of(static, base)
    return ()
