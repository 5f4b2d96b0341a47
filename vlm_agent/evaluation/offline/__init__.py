"""Offline evaluation: an agent answers every step of recorded episodes, in parts, so that a run can be resumed."""
