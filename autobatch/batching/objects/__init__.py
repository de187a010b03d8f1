"""Instances of the user's classes on cells: attributes, copies, what their types answer."""
