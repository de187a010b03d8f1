"""How operations on the values of a thread group become batched kernels."""
