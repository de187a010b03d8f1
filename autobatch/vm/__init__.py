"""The virtual machine: thread groups, the waiting queue, calls and forks, the engines."""
