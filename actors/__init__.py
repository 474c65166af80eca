"""What lives: the in-process runtime and every actor."""
