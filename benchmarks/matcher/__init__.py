"""The parts of the matcher's benchmark."""
