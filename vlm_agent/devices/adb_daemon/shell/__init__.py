"""The shell of the simulated phone: parsing of command lines and the commands that it offers."""
