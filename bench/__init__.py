"""What it costs: the simulated provider, the demo and the benchmarks."""
