"""Gradients of rows that nobody needed: such rows add none, as in the loop, where none is taken.

A column's backward computes all rows. The cotangent of a row whose result its thread has never
used is zero, and ``0 * inf`` is nan. So operations whose derivative may be infinite (``risks``) get
operands that look at their gradient (``guards``): where it is not finite, autograd's graph is
walked from the run's results to there, along the moves of rows (``moves``), to tell which rows were
needed (``walk``); the others are zero. What all threads share, and is computed once for them
(``WHOLE``), is needed if one of its rows is.
"""
