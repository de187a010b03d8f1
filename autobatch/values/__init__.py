"""What the variables of a thread group hold: cells, their kinds, lists and tables; and the heap."""
