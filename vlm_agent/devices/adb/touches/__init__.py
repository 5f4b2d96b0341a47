"""Touches of a person on a phone, from Android's `getevent`.

`panels.py`: `getevent -lp`, the touch screens. `events.py`: `getevent -lt`, one event a line. `fingers.py`: events →
gestures. `actions.py`: a gesture on a screen, whichever way it is turned → an Action.
"""
