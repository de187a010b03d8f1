"""Packed values as a whole: operations that run once on the rows of all threads.

``rules`` are asked one after the other; what none of them takes runs with one tensor for each
thread, those of one length together (``packed.lent``).
"""
