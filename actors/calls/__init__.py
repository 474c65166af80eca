"""One provider call: slot, attempt, stream, usage, outcome."""
