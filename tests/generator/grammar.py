"""The grammar of generated programs: templates with typed holes.

A hole is ``{type}``: any expression of the type. ``{type$1}`` is a variable, the same one
wherever the label recurs in the template; ``{var:type}`` (with or without label) is a
variable that may be assigned; ``{new$1}`` is a name not used before. Types:

    int float bool str    Python's; a ``float`` may hold an int
    opt                   an int or None
    i0 f0                 0-d tensors, integer and floating; an ``f0`` has any float dtype
    i3 f3 f2              1-d tensors of that length
    ints tensors          a list of int, of f3
    counts record         a dict {'a': int, 'b': int}, a Record
    fn                    a function of one int that returns an int

What may grow without bound in a loop is not here: an int is not squared, a string or a
list not doubled, and a loop whose body may append to a list runs over a part of it.
Transcendental functions are followed by an affine map with crooked
factors: where a batched kernel rounds otherwise than the scalar one, no comparison with
a round constant should notice. ``RISKY_…`` holds what raises on some threads.
"""

from __future__ import annotations

# fmt: off
LITERALS: dict[str, tuple[str, ...]] = {
    "int": ("1", "0", "2", "3", "5", "-1", "-4"),
    "float": ("0.5", "0.0", "1.5", "-2.0", "3", "0.25"),
    "bool": ("True", "False"),
    "str": ("'a'", "''", "'bc'"),
    "opt": ("None",),
    "i0": ("torch.tensor(2)",),
    "f0": ("torch.tensor(1.5)", "torch.tensor(0.5, dtype=torch.float64)"),
    "i3": ("torch.tensor([1, 2, 3])", "torch.arange(3)"),
    "f3": (
        "torch.ones(3)", "torch.tensor([0.5, -1.0, 2.0])", "torch.zeros(3, dtype=torch.float64)",
    ),
    "f2": ("torch.tensor([0.5, -0.5])",),
    "ints": ("[]", "[1, 2]", "[3]"),
    "tensors": ("[torch.ones(3)]", "[]"),
    "counts": ("{'a': 1, 'b': 2}",),
    "record": ("Record(0.5)",),
}

EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "int": (
        "{int} + {int}", "{int} - {int}", "{int} * 3", "-{int}", "{int} // 3", "{int} % 4",
        "{int} // -2", "{int} % -3", "({int} % 97) * ({int} % 89)", "abs({int})",
        "min({int}, {int})", "max({int}, {int}, 1)", "{int} if {bool} else {int}", "int({bool})",
        "{int} & 7", "{int} ^ {int}", "{int} | 2", "{int} << 2", "{int} >> 1", "~{int}",
        "{int} or {int}", "{int} and {int}", "({var:int} := {int})", "divmod({int}, 3)[1]",
        "({int} % 5) ** 2", "{int} * 4611686018427387904", "+{int}",
        "{opt$1} if {opt$1} is not None else {int}", "int({float})", "round({float})",
        "math.floor({float})", "len({ints})", "sum({ints})", "{ints}.count({int})",
        "{ints$1}[{int} % len({ints$1})] if {ints$1} else {int}", "{ints$1}[-1] if {ints$1} else 0",
        "max({ints}, default={int})", "(lambda p: p + {int$1})({int})",
        "sum(1 for e in {ints$1}[:5] if e > {int})", "int({i0})", "{i0}.item()",
        "int({f3}.argmax())", "len({f3})", "len({tensors})", "{i3}[{int} % 3].item()",
        "{counts}['a']", "{counts$1}['b'] - {counts$1}['a']", "{counts}.get('c', {int})",
        "len({str})", "ord({str$1}[0]) if {str$1} else 0", "sum({record}.items)",
        "{record}.total({int})",
        "{fn$1}({int})", "{fn$1}({fn$1}({int}))",
    ),
    "float": (
        "{float} + {float}", "{float} - {float}", "{float} * 0.5", "-{float}", "{float} / 4",
        "{int} / 8", "{float} * ({float} % 2.0)", "{float} % 1.5", "{float} // 0.5", "abs({float})",
        "min({float}, {float})", "max({float}, {int})", "{int}", "{float} if {bool} else {float}",
        "{float} if {bool} else {int}", "float({int})", "math.sqrt(abs({float}))",
        "math.tanh({float}) * 0.37 + 0.113", "math.sin({float}) * 0.59 + 0.071",
        "math.exp(min({float}, 2.0)) * 0.31 + 0.057", "({float} % 3.0) ** 2", "math.fabs({float})",
        "math.copysign(1.5, {float})", "({var:float} := {float})", "{record}.value", "{f0}.item()",
        "float({f3}.max())",
    ),
    "bool": (
        "{int} > {int}", "{int} == {int}", "{int} % 2 == 0", "{float} < {float}", "not {bool}",
        "{bool} and {bool}", "{bool} or {bool}", "{int} <= {int} < {int}", "{int} != {int}",
        "{float} >= {int}", "{int} in (1, 2, 3)", "{bool} == {bool}", "isinstance({float}, int)",
        "{opt} is None", "bool({int})", "any([{bool}, {bool}])", "{int} in {ints}",
        "all(e > {int} for e in {ints$1}[:5])", "any(e == {int} for e in {ints$1}[:5])",
        "len({ints$1}) > 0 and {ints$1}[0] > {int}", "not {ints}", "{ints} == {ints}",
        "0 <= {int$1} < len({ints$2}) and {ints$2}[{int$1}] > {int}", "{ints$1} is {ints$2}",
        "{f0} > {float}", "{i0} % 2 == 0", "bool({f0} < {f0})", "{f3$1} is {f3$2}",
        "({f3} > {float}).any()", "bool(torch.equal({f3}, {f3}))", "{f3}.sum() > {float}",
        "{str} < {str}", "'a' in {str}", "{str} == {str}", "{record$1} is {record$2}",
        "'c' in {counts}",
    ),
    "str": (
        "({str} + {str})[-8:]", "str({int})", "{str}.upper()", "{str}[:2]", "{str}[::-1]",
        "f'<{{int$1}}>'", "f'{{int$1}:>3}{{str$2}!r}'[:8]", "{str} if {bool} else {str}",
        "'-'.join(str(e) for e in {ints$1})[:8]", "{str}.replace('a', 'b')", "'%d' % {int}",
    ),
    "opt": ("{int} if {bool} else None", "{int}"),
    "i0": (
        "{i0} + {i0}", "{i0} - ({int} % 50)", "{i0} * 3", "{i0} // 2", "{i0} % 4", "-{i0}",
        "{i0}.abs()", "{i3}.sum()", "{i3}[{int} % 3]", "torch.tensor({int} % 9)",
        "{i0} if {bool} else {i0}", "torch.where({i0} > 0, {i0}, {i0})", "{i3}.max()",
    ),
    "f0": (
        "{f0} + {f0}", "{f0} - {float}", "{f0} * 0.5", "{float} - {f0}", "{f0} + {i0}",
        "{f3}.sum()", "{f3}.mean()", "{f3}[{int} % 3]", "{f3}[-1]", "{f0}.abs()", "{i0} / 2",
        "{f0} * {f0}.clamp(-2, 2)", "torch.tensor(float({float}))", "{f0} if {bool} else {f0}",
        "torch.where({f0} > 0, {f0}, {f0})", "torch.maximum({f0}, {f0})", "{f0}.double()",
        "({f3} * {f3}.clamp(-1, 1)).sum()", "torch.tanh({f0}) * 0.37 + 0.113", "{i0} * 0.5",
    ),
    "i3": (
        "{i3} + {i3}", "{i3} + ({int} % 50)", "{i3} * {i0}", "{i3} // 2", "{i3} % 3", "-{i3}",
        "torch.minimum({i3}, {i3})", "{i3}.flip(0)", "{i3} if {bool} else {i3}",
        "torch.stack([{i0}, {i0}, {i0}])", "{i3}.cumsum(0)", "torch.full((3,), {int} % 9)",
    ),
    "f3": (
        "{f3} + {f3}", "{f3} - {f0}", "{f3} * 0.5", "{f3} + {float}", "{f3} + {i3}", "{f0} * {f3}",
        "{f3} * {f3}.clamp(-2, 2)", "{i3} / 4", "{i3} * 0.5", "-{f3}", "{f3}.abs()",
        "torch.relu({f3})", "torch.where({f3} > {float}, {f3}, {f3})", "{f3}.flip(0)",
        "torch.stack([{f0}, {f0}, {f0}])", "{f3} if {bool} else {f3}", "{f3}.double()",
        "torch.maximum({f3}, {f3})", "{f3}.cumsum(0)", "torch.tanh({f3}) * 0.37 + 0.113",
        "{f3}.clone()", "{f3}.clamp(-2, 2)", "torch.cat([{f2}, {f0}.reshape(1)])",
        "torch.full((3,), float({float}))", "{i3} + {f0}", "{i0} * {f3}", "{f3}.float()",
        "{tensors$1}[{int} % len({tensors$1})] if {tensors$1} else {f3}",
    ),
    "f2": ("{f3}[:2]", "{f3}[1:]", "{f2} + {f2}", "{f2} * 0.5", "{f2} + {f0}", "{f2}.clone()"),
    "ints": (
        "[{int}, {int}]", "{ints}[:3]", "{ints}[1:]", "({ints} + {ints})[:6]", "list({ints})",
        "sorted({ints})", "[e + {int} for e in {ints$1}[:5]]",
        "[e for e in {ints$1} if e % 2 == 0]",
        "{ints} if {bool} else {ints}", "{ints}[::-1]", "[{int}] * 2", "list(range({int} % 4))",
        "[i * e for i, e in enumerate({ints$1})]", "[d + e for d, e in zip({ints$1}, {ints$2})]",
        "[{int}, *{ints}][:6]", "list(reversed({ints}))", "{record}.items",
    ),
    "tensors": (
        "[{f3}, {f3}]", "{tensors}[:2]", "({tensors} + {tensors})[:4]",
        "[t * 0.5 for t in {tensors$1}]",
    ),
    "counts": ("{'a': {int}, 'b': {int}}", "dict({counts})", "{counts} if {bool} else {counts}"),
    "record": ("Record({float})", "{record} if {bool} else {record}"),
}

STATEMENTS: tuple[str, ...] = (
    "{var:int} = {int}", "{var:int} += {int}", "{var:int} -= {int}", "{var:int} //= 2",
    "{var:int}, {var:int} = {int}, {int}", "{var:int} = {var:int} = {int}", "{var:float} = {float}",
    "{var:float} += {float}", "{var:float} *= 0.5", "{var:float} = {int}",
    "{var:float}, {var:int} = {float}, {int}", "{var:bool} = {bool}", "{var:opt} = {opt}",
    "{new$1} = {int}\n{var:int} += {new$1}\ndel {new$1}",
    "{new$1}: int = {int}\n{var:int} = {new$1}",
    "({var:int}, {var:float}), {var:bool} = ({int}, {float}), {bool}",
    "{var:int}, *{var:ints} = {int}, {int}, {int}", "assert {int} > -(10 ** 40), 'never'",
    "{var:ints}.append({int})", "{var:ints} = {ints}", "{var:ints} += [{int}]",
    "{var:ints}, {var:ints} = {ints}, {ints}",
    "if {ints$1}:\n    {ints$1}[{int} % len({ints$1})] = {int}",
    "if {ints$1}:\n    {ints$1}[-1] += {int}", "if {ints$1}:\n    {var:int} = {ints$1}.pop()",
    "{ints$1}.insert(0, {int})", "{ints$1}.reverse()", "if len({ints$1}) > 1:\n    del {ints$1}[0]",
    "{ints$1}.extend({ints}[:2])", "{ints$1}[1:2] = [{int}]", "{var:ints$1} += {ints}[:2]",
    "{var:i0} = {i0}", "{var:f0} = {f0}", "{var:i3} = {i3}", "{var:f3} = {f3}", "{var:f2} = {f2}",
    "{var:f3}, {var:f3} = {f3}, {f3}", "{var:f0} += {float}", "{var:f0} *= 0.5", "{var:i0} += 1",
    "{var:f3} += {float}", "{var:f3} -= {f3} * 1.0", "{var:f3} *= 0.5", "{var:i3} += {int} % 9",
    "{var:f3}[{int} % 3] = {float}", "{var:f3}[0] = {f0} * 1.0", "{var:f3}[{int} % 3] += {float}",
    "{var:f3}[:2] = {float}", "{var:f3}[1:] = {f2} * 1.0", "{var:i3}[{int} % 3] = {int} % 9",
    "{var:f2} += {float}", "{var:f2}[{int} % 2] = {float}", "{f3$1}.mul_(0.5)",
    "{f3$1}.clamp_(-4, 4)", "{f3$1}.add_({f3} * 1.0)", "{f3$1}.copy_({f3} * 1.0)", "{f2$1}.zero_()",
    "{f0$1}.add_(1)", "{var:tensors}.append({f3})", "{var:tensors} = {tensors}",
    "if {tensors$1}:\n    {tensors$1}[0] += {float}",
    "if {tensors$1}:\n    {tensors$1}[{int} % len({tensors$1})][0] = {float}",
    "if {tensors$1}:\n    {var:f3} = {tensors$1}[-1]", "{var:counts}['a'] = {int}",
    "{counts$1}['b'] += {int}", "{var:counts} = {counts}", "{counts$1}['c'] = {int}",
    "{var:str} = {str}", "{var:record} = {record}", "{record$1}.value += {float}",
    "{record$1}.items.append({int})", "{record$1}.add({int})", "{record$1}.items = {ints}",
    "with torch.no_grad():\n    {var:f3} = {f3}",
)

# What branches and loops decide on: some name takes part, so that threads part.
CONDITIONS: tuple[str, ...] = (
    "{int$1} > {int}", "{int$1} % 2 == 0", "{int$1} % 3 == 1", "{int$1} < {int} + 3",
    "{float$1} > {float}", "{float$1} < {float}", "{f0$1} > {float}", "{i0$1} % 2 == 0",
    "{i0$1} > {int} % 9", "{f3$1}.sum() > {float}", "{f3$1}[{int} % 3] > {float}",
    "{i3$1}[0] < {i0}",
    "{int$1} > 2 or {bool}", "{int$1} > 0 and {bool}", "not {int$1} % 2", "{str$1} < {str}",
    "{bool$1}", "'a' in {str$1}", "len({ints$1}) > 1", "{ints$1} and {ints$1}[0] > 1", "{bool}",
    "{f3$1} is {f3$2}", "{record$1}.value > {float}", "{opt$1} is None",
)

# What raises on some threads, in programs that may.
RISKY_EXPRESSIONS: dict[str, tuple[str, ...]] = {
    "int": ("{int} // {int}", "{int} % {int}", "{ints$1}[{int}]", "{opt$1} + 1"),
    "float": ("{float} / {float}", "math.sqrt({float})", "math.log({float})", "{float} ** -1"),
    "f0": ("{f3}[{int}]", "{i0} // {i0}"),
    "str": ("{str}[{int}]",),
}

RISKY_STATEMENTS: tuple[str, ...] = (
    "assert {bool}", "assert {int} < 7, f'large: {{int$1}}'",
    "if {bool} and {bool}:\n    raise ValueError('refused')", "{ints$1}.pop()",
    "del {ints$1}[{int}]", "if {int} == 5:\n    raise KeyError({int})",
    "{var:int}, {var:int} = {ints}",
)
# fmt: on
