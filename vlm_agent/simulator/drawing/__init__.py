"""Drawing the screens of the simulated phone."""
