"""The run folder: its layout, its checkpoints, its status."""
