"""Reinforcement: an agent plays tasks on phones, and learns from its own answers by what became of them.

`data.py` makes the rows of `training/train.py` from rollouts; the loop, its checkpoints and its log are those of every
run. A round: the tasks are drawn (`rounds.py`), played (`rollouts.py`), weighed (`methods/`), and become sentences
(`sentences.py`).
"""
