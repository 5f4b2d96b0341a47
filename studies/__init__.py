"""What models learn and what agents achieve: a folder a paper, with its script, its figures and its verdict."""
