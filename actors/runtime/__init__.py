"""The in-process actor runtime."""
