"""The training data of a run: its data module and the stream of rows."""
