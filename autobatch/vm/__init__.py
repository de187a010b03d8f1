"""The virtual machine: heap and values, thread groups, the waiting queue, the engines."""
