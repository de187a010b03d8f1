"""What generated programs write, and through what: templates as in ``grammar``.

Methods that write in place, ``out=``, views, lists and dicts, for tensors that are alike for all
threads when they are made (``torch.zeros(3)``) and for a thread's own. A tensor is written with a
copy of another, never with what may overlap it, of which torch leaves open what comes of it.
More types than there:

    m3 b3        a matrix of 3 by 3, 1-d bools of length 3
    table held   a dict {'x': f3, 'y': f3}, a Held
"""

from __future__ import annotations

# fmt: off
LITERALS: dict[str, tuple[str, ...]] = {
    "m3": ("torch.zeros(3, 3)", "torch.eye(3)", "torch.ones(3, 3)"),
    "b3": ("torch.tensor([True, False, True])", "torch.zeros(3, dtype=torch.bool)"),
    "table": ("{'x': torch.zeros(3), 'y': torch.ones(3)}",),
    "held": ("Held(torch.zeros(3))",),
}

EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "m3": (
        "{m3}.t()", "{m3}.T", "{m3} * 0.5", "{m3} + {f3}", "{m3}.clone()", "torch.zeros(3, 3)",
        "torch.arange(9.0).view(3, 3)", "torch.outer({f3}, {f3}.clamp(-1, 1))",
        "torch.stack([{f3}, {f3}, {f3}])", "{f3}.new_zeros(3, 3)", "torch.zeros_like({m3})",
        "{m3} if {bool} else {m3}", "{m3}.clamp(-2, 2)", "{m3$1}.mul_(0.5)", "{m3}.view(3, 3)",
    ),
    "b3": (
        "{f3} > {float}", "{i3} % 2 == 0", "{b3} & {b3}", "~{b3}", "{f3} <= {f3}",
        "{b3} if {bool} else {b3}",
    ),
    "table": ("{'x': {f3}, 'y': {f3}}", "dict({table})", "{table} if {bool} else {table}"),
    "held": ("Held({f3})", "{held} if {bool} else {held}"),
    "f3": (
        "torch.zeros(3)", "torch.zeros_like({f3})", "{f3}.new_zeros(3)", "torch.arange(3.0)",
        "{f3}.new_full((3,), 0.5)", "torch.empty(3).fill_({float})", "{m3}[{int} % 3]",
        "{m3}[:, {int} % 3]", "{m3}.diagonal()", "{m3}.sum(0)", "{m3}.view(3, 3)[0]",
        "{f3$1}.add_({float})", "{f3$1} + {f3$1}.mul_(0.5)", "torch.relu_({f3$1})", "{f3}.view(3)",
        "{table}['x']", "{table$1}['y'] + {table$1}['x']", "{held}.tensor", "{f3} * {b3}",
        "{f3}.masked_fill({b3}, {float})", "{f3} + 1", "torch.cos({f3$1}) * 0.43 + 0.117",
        "{held}.write({f3})", "torch.stack({f3$1}.unbind(0)) * 0.5", "{f3}.detach()",
    ),
    "f0": ("{m3}[{int} % 3, {int} % 3]", "{f3}.view(3, 1)[{int} % 3, 0]", "{f3}.unbind(0)[1]"),
    "i3": ("torch.zeros(3, dtype=torch.int64)", "{i3}.clone()", "{i3$1}.add_(1)"),
    "bool": ("bool({b3}.any())",),
    "int": ("int({b3}.sum())", "{table}.get('z', {int}) if {bool} else 1", "len({table})"),
}

FLOATS = (
    "add_({f3} * 1.0)", "add_({float})", "sub_({f3} * 1.0)", "mul_(0.5)", "mul_({b3})",
    "div_(2)", "copy_({f3} * 1.0)", "copy_({f0} * 1.0)", "fill_({float})", "fill_({f0} * 1.0)",
    "zero_()", "clamp_(-2, 2)", "clamp_(min=-1)", "neg_()", "abs_()", "relu_()",
    "masked_fill_({b3}, {float})", "masked_fill_({b3}, {f0} * 1.0)",
    "lerp_({f3$2}.type_as({f3$1}) * 1.0, 0.5)",
    "addcmul_({f3} * 1.0, {f3}.clamp(-1, 1))", "cumsum_(0)", "floor_()", "trunc_()",
    "index_add_(0, {i3} % 3, {f3$2}.type_as({f3$1}) * 1.0)", "index_fill_(0, {i3} % 3, {float})",
    "index_copy_(0, torch.tensor([2, 0, 1]), {f3$2}.type_as({f3$1}) * 1.0)",
    "scatter_(0, {i3} % 3, {float})", "scatter_add_(0, {i3} % 3, {f3$2}.type_as({f3$1}) * 1.0)",
    "index_put_(({i3} % 3,), {f0$2}.type_as({f3$1}) * 1.0, accumulate=True)",
    "masked_scatter_({b3}, {f3$2}.type_as({f3$1}) * 1.0)",
    "put_({i3} % 3, {f3$2}.type_as({f3$1}) * 1.0, accumulate=True)",
    "clamp_max_({float})",
)

OUTS = (
    "add({f3}, {f3}, out={f3$1})", "mul({f3}, 0.5, out={f3$1})", "clamp({f3}, -2, 2, out={f3$1})",
    "neg({f3}, out={f3$1})", "maximum({f3}, {f3}, out={f3$1})", "cumsum({f3} * 1.0, 0, out={f3$1})",
    "stack([{f0} * 1.0, {f0} * 1.0, {f0} * 1.0], out={f3$1})", "sum({m3} * 1.0, 0, out={f3$1})",
    "cat([{f2} * 1.0, {f3}[:1] * 1.0], out={f3$1})", "abs({f3$1}, out={f3$1})",
    "where({b3}, {f3}, {f3}, out={f3$1})", "gt({f3}, {float}, out={b3$1})",
    "sub({i3}, 1, out={i3$1})",
    "sort({f3} * 1.0, out=({f3$1}, {i3$2}))", "mul({m3}, 0.5, out={m3$1})",
    "sum({f3} * 1.0, 0, out={f0$1})",
    "index_select({f3} * 1.0, 0, {i3} % 3, out={f3$1})",
    "gather({f3} * 1.0, 0, {i3} % 3, out={f3$1})",
)

VIEWS = (
    "{f3$1}[1:].add_({f2} * 1.0)", "{f3$1}[:2].mul_(0.5)", "{f3$1}.view(-1)[{int} % 3] = {float}",
    "{f3$1}.view(3, 1).add_({f3}.view(3, 1) * 1.0)", "{m3$1}.t().mul_(0.5)",
    "{m3$1}.t().add_({f3} * 1.0)", "{m3$1}.view(3, 3)[{int} % 3, 1] = {float}",
    "{m3$1}[{int} % 3].add_({f3} * 1.0)", "{m3$1}[:, {int} % 3] = {f3} * 1.0",
    "{m3$1}.diagonal().add_({f3} * 1.0)", "{m3$1}[1:, 1:] += {float}", "{m3$1}[{b3}] = {float}",
    "{m3$1}.T[0].copy_({f3} * 1.0)", "{m3$1}[{int} % 3, {int} % 3] += {f0} * 1.0",
    "{m3$1}[{int} % 3] = {f3} * 1.0", "{m3$1}.add_({m3} * 1.0)", "{m3$1}.fill_diagonal_({int} % 3)",
    "{m3$1}.copy_({m3} * 1.0)", "{m3$1}.zero_()", "{m3$1}[0], {m3$1}[1] = {f3} * 1.0, {f3} * 2.0",
    "{new$1}, {new$2}, {new$3} = {f3$4}.unbind(0)\n{new$2}.add_({float})\n{new$1}.copy_({f0})",
    "{new$1}, {new$2} = {f3$4}.split([1, 2])\n{new$2}.mul_(0.5)\n{new$1}.add_({f3$4}[1:2] * 1.0)",
    "{new$1}, {new$2} = {f3$4}.chunk(2)\n{new$1}.add_({f2} * 1.0)\n{f3$4}[2] = {new$1}[0] * 1.0",
    "{new$1}, {new$2}, {new$3} = {m3$4}\n{new$3}.add_({f3} * 1.0)\n{new$1}.mul_(0.5)",
    "{new$1}, {new$2}, {new$3} = {m3$4}.unbind(1)\n{new$3}.copy_({new$1} * 1.0)",
    "for {new$1} in {f3$4}:\n    {new$1}.mul_(0.5)",
    "for {new$1} in {m3$4}:\n    {new$1}.add_({f3} * 1.0)",
    "for {new$1} in {m3$4}.t():\n    {new$1}[{int} % 3] = {float}",
    "for {new$1} in {tensors$4}[:3]:\n    {new$1}.add_({float})",
    "{f3$1}.narrow(0, {int} % 2, 2).add_({f2} * 1.0)", "{f3$1}.select(0, {int} % 3).fill_({float})",
    "{f3$1}.unsqueeze(0)[0, {int} % 3] = {float}", "{f3$1}.detach().add_({float})",
    "{f3$1}[{b3}] = {float}", "{f3$1}[{b3}] += {float}", "{f3$1}[{i3} % 3] = {float}",
    "{f3$1}[{i3} % 3] += {float}", "{f3$1}[::2] *= 0.5", "{f3$1}[...] = {f3} * 1.0",
    "{f3$1}.flatten().neg_()", "{f3$1}.reshape(3, 1)[{int} % 3] = {float}",
    "{m3$1}.reshape(-1)[{int} % 9] = {float}",
    "{m3$1}.index_add_(0, {i3} % 3, {m3$2}.type_as({m3$1}) * 1.0)",
    "{m3$1}.masked_fill_({b3}, {float})", "{m3$1}.scatter_(1, ({i3} % 3).view(3, 1), {float})",
    "{m3$1}.index_select(0, {i3} % 3).add_(1)",
    "with torch.no_grad():\n    {f3$1}.mul_(0.5)", "{f0$1}.copy_({f0} * 1.0)", "{f0$1}.mul_(0.5)",
    "{i3$1}.add_({int} % 9)", "{i3$1}[{int} % 3] = {i0} * 1", "{i3$1}.remainder_(5)",
    "{b3$1}[{int} % 3] = {bool}", "{b3$1}.logical_not_()", "{var:b3} &= {b3}", "{var:b3} = {b3}",
    "{var:m3} = {m3}", "{var:f3} = {m3$1}[{int} % 3]", "{var:f3} = {m3$1}.t()[{int} % 3]",
    "{var:f2} = {f3$1}[1:]", "{var:f0} = {f3$1}[{int} % 3]", "{var:m3} = {m3$1}.t()",
)

OTHER_NAMES = tuple(
    f"{{new$1}} = {made}\n{{new$2}} = {{new$1}}{of}\nif {{bool}}:\n    {{new$2}} {write}{other}\n"
    f"{{var:{kind}}} = {{new$1}}"
    for kind, made, ofs in (
        ("f3", "{f3} * 0.5", ("", ".view(3)", "[1:]", ".detach()", "[{int} % 3]")),
        ("m3", "{m3} + 1", ("[{int} % 3]", ".t()", "[:, 1]")),
    )
    for of, write, other in zip(
        ofs,
        ("+= {float}", "*= 0.5", "-= {float}", "+= {int} % 3", "/= 2"),
        ("", "\nelse:\n    {new$2} -= 1", "", "\n    {new$2} *= 0.5", ""),
        strict=False,
    )
)
"""What a branch writes by another name that nothing reads after it, just after it was made."""

CONTAINERS = (
    "{ints$1}.sort()", "{ints$1}.sort(reverse=True)", "{ints$1}.sort(key=lambda e: -e)",
    "if {ints$1}:\n    {var:int} = {ints$1}.pop(0)", "{ints$1}.insert({int} % 3, {int})",
    "if {ints$1}:\n    {ints$1}.remove({ints$1}[-1])", "{ints$1}.clear()", "del {ints$1}[2:]",
    "{ints$1}[:] = {ints}[:3]",
    "if len({ints$1}) > 1:\n    {ints$1}[0], {ints$1}[1] = {ints$1}[1], {ints$1}[0]",
    "{counts$1}.update({'a': {int}})", "{counts$1}.update(b={int})", "{counts$1}.update({counts})",
    "{var:int} = {counts$1}.pop('c', {int})", "{var:int} = {counts$1}.setdefault('c', {int})",
    "for {new$1} in {counts$2}:\n    {counts$2}[{new$1}] += 1", "{var:counts} |= {'b': {int}}",
    "if 'c' in {counts$1}:\n    del {counts$1}['c']",
    "{tensors$1}.insert(0, {f3})", "if {tensors$1}:\n    {var:f3} = {tensors$1}.pop()",
    "{tensors$1}.reverse()",
    "{tensors$1}.extend([{f3}, {f3$2}])", "if len({tensors$1}) > 1:\n    del {tensors$1}[0]",
    "del {tensors$1}[3:]",
    "if {tensors$1}:\n    {tensors$1}[0].add_({f3} * 1.0)",
    "if {tensors$1}:\n    {tensors$1}[-1] = {f3}",
    "if {tensors$1}:\n    {tensors$1}[{int} % len({tensors$1})].mul_(0.5)",
    "{tensors$1}.append({f3$2}[:])",
    "{table$1}['x'].add_({f3} * 1.0)", "{table$1}['x'] += {f3} * 1.0", "{table$1}['y'] = {f3}",
    "{table$1}.update(x={f3})", "{table$1}.update({table})", "{table$1}['y'][{int} % 3] = {float}",
    "{var:f3} = {table$1}.setdefault('x', {f3})", "{table$1}.setdefault('z', {f3}).add_(1)",
    "{table$1}.pop('z', None)", "for {new$1} in {table$2}.values():\n    {new$1}.mul_(0.5)",
    "{var:table} = {table}", "{var:held} = {held}", "{held$1}.tensor = {f3}",
    "{held$1}.tensor += {float}", "{held$1}.tensor.add_({f3} * 1.0)", "{held$1}.write({f3})",
    "{held$1}.tensor[{int} % 3] = {float}", "{held$1}.times += 1",
)

STATEMENTS: tuple[str, ...] = (
    *(f"{{f3$1}}.{call}" for call in FLOATS),
    *(f"torch.{call}" for call in OUTS),
    *VIEWS,
    *OTHER_NAMES,
    *CONTAINERS,
)

CONDITIONS: tuple[str, ...] = (
    "{b3$1}.any()", "{m3$1}[{int} % 3, 0] > {float}", "{table$1}['x'][0] > {float}",
    "{held$1}.tensor.sum() > {float}", "bool({b3$1}[{int} % 3])", "{held$1}.times > 1",
)
# fmt: on
