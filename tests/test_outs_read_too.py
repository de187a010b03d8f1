"""Operations that write to what they read, by ``out=`` or in place: as torch does it for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import autobatch

MATRICES = torch.randn(3, 3, 3, generator=torch.Generator().manual_seed(3))
ORDER = torch.tensor([2, 0, 1])
Program = Callable[[Tensor], Any]


def places(m: Tensor) -> Tensor:
    return torch.zeros(m.shape, dtype=torch.long)


WRITES: dict[str, Program] = {
    "mm": lambda m: torch.mm(m, m, out=m),
    "mm of another": lambda m: torch.mm(m * 2, m, out=m),
    "mm of its transposed": lambda m: torch.mm(m.t(), m, out=m),
    "matmul": lambda m: torch.matmul(m, m, out=m),
    "mv": lambda m: torch.mv(m, v := m[0].clone(), out=v),
    "mv of a row": lambda m: torch.mv(m, m[0], out=m[0]),
    "bmm": lambda m: torch.bmm(b := m[None].clone(), b, out=b),
    "addmm to itself": lambda m: torch.addmm(m, m * 2, m * 3, out=m),
    "addmm": lambda m: torch.addmm(m * 2, m, m * 3, out=m),
    "addmv": lambda m: torch.addmv(v := m[0].clone(), m, v, out=v),
    "baddbmm": lambda m: torch.baddbmm(b := m[None].clone(), b * 2, b * 3, out=b),
    "addr": lambda m: torch.addr(m, m[0].clone(), m[1].clone(), out=m),
    "add": lambda m: torch.add(m, m * 2, out=m),
    "mul": lambda m: torch.mul(m, m, out=m),
    "lerp": lambda m: torch.lerp(m, m * 2, m, out=m),
    "clamp": lambda m: torch.clamp(m, -1, 1, out=m),
    "where": lambda m: torch.where(m > 0, m, m * 2, out=m),
    "cumsum": lambda m: torch.cumsum(m, 0, out=m),
    "cumprod": lambda m: torch.cumprod(m, 1, out=m),
    "cummax": lambda m: torch.cummax(m, 0, out=(m, places(m))),
    "sort": lambda m: torch.sort(m, out=(m, places(m))),
    "sort by columns": lambda m: torch.sort(m, 0, out=(m, places(m))),
    "topk": lambda m: torch.topk(v := m[0].clone(), 3, out=(v, places(v))),
    "kthvalue": lambda m: torch.kthvalue(m, 2, 0, out=(m[0], places(m[0]))),
    "max": lambda m: torch.max(m, 0, out=(m[0], places(m[0]))),
    "aminmax": lambda m: torch.aminmax(m, dim=0, out=(m[1].clone(), m[0])),
    "sum": lambda m: torch.sum(v := m[0].clone(), 0, keepdim=True, out=v),
    "mean": lambda m: torch.mean(m, 0, out=m[1]),
    "norm": lambda m: torch.linalg.vector_norm(m, dim=0, out=m[0]),
    "cat": lambda m: torch.cat([m], out=m),
    "stack": lambda m: torch.stack([m, m], out=m),
    "gather": lambda m: torch.gather(m, 0, (m > 0).long(), out=m),
    "scatter": lambda m: torch.scatter(m, 0, (m > 0).long(), m * 2, out=m),
    "index_select": lambda m: torch.index_select(m, 0, ORDER, out=m),
    "index_add": lambda m: torch.index_add(m, 0, ORDER, m * 2, out=m),
    "take": lambda m: torch.take(v := m[0].clone(), ORDER, out=v),
    "cross": lambda m: torch.cross(m, m * 2, dim=1, out=m),
    "tril": lambda m: torch.tril(m, out=m),
    "softmax": lambda m: torch.softmax(m, 1, out=m),
    "inv": lambda m: torch.linalg.inv(m, out=m),
    "solve": lambda m: torch.linalg.solve(m * 2, m, out=m),
    "matrix_power": lambda m: torch.linalg.matrix_power(m, 3, out=m),
    "diff": lambda m: torch.diff(m, dim=0, out=m),
    "kron": lambda m: torch.kron(m, m, out=m),
    "addmm_": lambda m: m.addmm_(m, m),
    "addmv_": lambda m: (v := m[0].clone()).addmv_(m, v),
    "addr_": lambda m: m.addr_(m[0], m[1]),
    "baddbmm_": lambda m: (b := m[None].clone()).baddbmm_(b, b),
    "mul_": lambda m: m.mul_(m),
    "index_add_": lambda m: m.index_add_(0, ORDER, m),
    "index_copy_": lambda m: m.index_copy_(0, ORDER, m),
    "scatter_": lambda m: m.scatter_(0, (m > 0).long(), m),
    "scatter_add_": lambda m: m.scatter_add_(0, (m > 0).long(), m),
    "masked_scatter_": lambda m: m.masked_scatter_(m > 0, m),
    "put_": lambda m: m.put_(ORDER, m[0]),
    "copy_": lambda m: m.copy_(m.t()),
}


def of_one(program: Program, m: Tensor) -> Any:
    own = m.clone()
    return program(own), own


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("executor", ["traced", "vmap"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_it_gives_what_the_loop_gives(write, executor):
    try:
        rows = [of_one(write, m) for m in MATRICES]
    except Exception as error:
        with pytest.raises(type(error)) as raised:
            autobatch.vmap(of_one, in_dims=(None, 0), executor=executor)(write, MATRICES)
        assert str(error)[:60] in str(raised.value)
        return
    want = torch.utils._pytree.tree_map(lambda *each: torch.stack(each), *rows)
    found = autobatch.vmap(lambda m: of_one(write, m), executor=executor)(MATRICES)
    torch.testing.assert_close(found, want, equal_nan=True)


def test_ints_take_the_value_of_what_requires_grad():
    def program(x):
        ints = torch.zeros(2, dtype=torch.long)
        ints.fill_(x)
        ints[1] += 1
        return ints

    xs = torch.tensor([1.0, 2.0], requires_grad=True)
    assert autobatch.vmap(program)(xs).tolist() == [[1, 2], [2, 3]]
