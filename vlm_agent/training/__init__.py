"""The run: recipe, data, model, loop, run folder."""
