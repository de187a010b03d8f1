"""What is called, and with what: modules, stateless calls, draws under a seed."""
