"""Parts of `studies/coat`."""
