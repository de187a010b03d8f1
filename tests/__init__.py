"""The tests; ``oracle`` holds every batched call to the plain loop."""
