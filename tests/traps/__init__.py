"""Small programs with traps, for ``test_traps``."""
