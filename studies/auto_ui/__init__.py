"""Parts of `studies/auto_ui`."""
