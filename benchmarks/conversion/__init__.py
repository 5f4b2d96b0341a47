"""The parts of `benchmarks/conversion`: the records, the methods ("roads"), and the memory of processes."""
