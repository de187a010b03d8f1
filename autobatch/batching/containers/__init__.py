"""Lists, tuples, dicts and iterators on cells: displays, subscripts, methods, reductions."""
