"""Execution stacks, each behind a worker, and the parent's side that asks them."""
