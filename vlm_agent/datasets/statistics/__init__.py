"""Statistics of a data set, at the terminal and as a page."""
