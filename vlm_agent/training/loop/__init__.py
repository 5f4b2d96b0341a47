"""The training loop: what `training/train.py` calls in every step."""
