"""The parts of `benchmarks/training`: the shapes, the episodes, the methods ("roads"), and their figures."""
