"""Writes to tensors that all threads share: noted as contributions, reduced, applied once."""
