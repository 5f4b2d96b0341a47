"""The checks of `vlm-agent doctor`, one file each."""
