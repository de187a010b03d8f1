"""torch's functions, views and look-ups on cells that hold tensors."""
