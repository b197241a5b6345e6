"""Nodes compared apart from each other, in other threads, processes or machines."""
