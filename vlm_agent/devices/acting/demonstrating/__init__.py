"""Demonstrating: what a person does on a phone, watched and written in words (VisionTasker, section 5.2).

`observed.py`: one action with the screen it was done on. `lines.py`: observed actions → lines such as "tap 'Settings'".
Where they come from: `served.py` (a simulated phone that a person or a program operates over ADB), `touched.py` (the
touches of a real phone), `traced.py` (a trace).
"""
