"""Thread by thread: cells as real Python values, one for each thread, and back."""
