"""Bugs that are put into a target, to see that they are found."""
