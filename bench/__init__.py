"""Side-by-side benchmarks: our work and a peer's in turns, in one run, since only their ratio means something."""
