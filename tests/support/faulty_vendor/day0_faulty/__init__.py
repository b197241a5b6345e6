"""Stacks that misbehave on purpose."""
