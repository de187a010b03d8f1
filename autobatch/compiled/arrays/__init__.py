"""Tensors with dimensions in machine code: few elements, each thread's own."""
