"""Derivatives and mapping of per-example programs, around batches and inside programs.

``grad(f)``, ``jacrev(f)``, ``vmap(f)`` and the others are *transforms*: functions made of a
function, with ``torch.func``'s signatures. What each means for one example is ``torch.func``
itself (``public``): values are concrete there, so any control flow works. What it means for a
group of threads is decided where a program calls it (``batched``), and ``autobatch.vmap(grad(f))``
is a program that does so; there is no other way, and ``torch.func``'s own functions, called inside
a program, go the same one.

- **Derivatives** (``derivatives``, ``jacobians``). A thread's row depends on no other thread's, so
  one ``torch.func`` transform of *the whole group's run of f* gives every thread's derivative: the
  differentiated arguments become fresh columns ``[k, *E]`` at a functorch level of their own, the
  engine runs ``f`` on them as it runs any call, blocks replaying straight torch calls that the
  level sees, and the pullback of ones (of one-hot rows for a Jacobian, under ``torch.vmap``) comes
  back by row. Forward mode is the same with duals. Levels nest, so transforms compose with each
  other in any order, and with ``torch.func`` outside of a batched call.
- **Control flow** reads data through functorch's wrappers (``batching.compat``): a branch depends
  on values, never on derivatives. What a thread does not execute adds nothing to its gradient.
- **Shared arguments.** A differentiated argument that all threads share gets a derivative for each
  thread: it becomes a column that repeats one tensor in memory. A large one stays in one place in
  reverse mode: threads part and meet by row numbers, and its products read it once
  (``vm.repeated``). What has a row for each thread is only its gradient, as it must.
- **Mapping** (``mapping``): ``vmap(h)`` inside a program multiplies rows. ``h`` runs for threads
  x inner rows, each row with its thread's index, in one call; results regroup to ``[k, n, *E]``.

In: cells of a group's arguments. Out: a cell of the results; the exception of a thread is the one
that ``f``, or ``torch.func`` on this thread's example, raises. What a level has made and cells
outside still hold is taken out of its wrappers when the level ends.
"""

from __future__ import annotations

from autobatch.transforms.public import (
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    value_and_grad,
    vjp,
)

__all__ = ["grad", "hessian", "jacfwd", "jacrev", "jvp", "value_and_grad", "vjp"]
