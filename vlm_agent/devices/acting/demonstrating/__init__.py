"""Demonstrating: what a person does on a phone, watched and written in words (VisionTasker, section 5.2).

`observed.py`: one action with the screen it was done on, also those of a trace. `lines.py`: observed actions → lines
such as "tap 'Settings'". `touched.py`: the touches on a real phone; `simulator/watched.py`: those on a simulated one.
"""
