"""Published scorers of AndroidControl and GUI-Odyssey."""
