"""Offline evaluation: an agent answers every step of recorded episodes, in parts that can be resumed."""
