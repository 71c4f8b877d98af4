"""The table of c10d's features: what a program may do with a process group, played on gloo and on fairring.

A module is an area of the table; each of its public functions is a feature, and its docstring is the feature's name.
"""
