"""Seeded draws: each is a function of the seed, the thread's index, and where the thread draws.

With ``seed=``, a thread has random words of its own at every point of its program, from a
counter-based generator (``philox``): no state is kept but how often the thread has drawn, so
nothing depends on which threads run together, in which order, or on what else has drawn.

**A thread's path.** A call that ends a block (of a function of several blocks, or of one that was
not known when its caller was lowered) opens a *path*: what it draws is numbered from 0, under a
key made of its caller's key and of how often the caller had drawn or called before (splitting
after Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014). All other
calls draw in their caller's place. So no call changes what comes after another, a call draws the
same whether it was forked, runs in order or on a stack that is data, and calls that draw can be
joined like any others. In a function that makes no such calls, a draw is a function of the seed,
the thread's index in the input, and the number of that thread's earlier draws.

- ``philox``: the generator. ``paths``: keys and numbers of threads. ``sources``: words for them.
- ``transforms``: from words to uniform, normal, integer and other numbers.
- ``laws``: torch's random operations, by those; ``drawing``: when they are served from where.
- ``python``: the functions of ``random``.
"""
