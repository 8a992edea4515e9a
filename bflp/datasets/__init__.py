"""Data sets: what is built in, how raw files become one prepared file, and how that file is opened.

`convert` holds all that can change a prepared number; checks, downloads and messages are in the others.
"""
