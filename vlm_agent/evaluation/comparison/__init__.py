"""A comparison: several agents, trained or prompted, on the same steps and the same phones, in one table."""
