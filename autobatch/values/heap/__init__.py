"""A group's cells and how they move: every cell that the roots reach moves once.

*Roots* are the cells that the live variables refer to. ``walks`` goes through what they reach,
``copying`` makes it anew, ``selecting`` takes the rows of threads that part, ``likeness`` says
which heaps may meet, and ``merging`` makes one heap of those. So aliases survive: two names for one
list or tensor still are one after threads part and meet. Views move as recipes; only their base
moves rows.
"""
