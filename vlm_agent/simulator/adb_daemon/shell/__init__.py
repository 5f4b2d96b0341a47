"""The shell of the simulated phone: the parser of command lines, and the commands."""
