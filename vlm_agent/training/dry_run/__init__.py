"""The dry run: parameters, tokens, FLOPs, memory and hours of a recipe, without reading a weight."""
