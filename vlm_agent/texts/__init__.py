"""Screens and actions in a few words, without a model.

`phone.py`: a screen (SD), and what an action changed (AR), from what any phone provides. `actions.py`: an action (AD).
`secrets.py`: which typed texts are masked. `folding.py`: lists of words, and one spelling for them.
"""
