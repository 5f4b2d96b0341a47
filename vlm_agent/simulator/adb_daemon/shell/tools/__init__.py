"""The programs of the simulated phone, one file for each group. `commands.py` has the table of all of them.

A program is a function of the handset and its call. Output that programs read has the format of Android 13.
"""
