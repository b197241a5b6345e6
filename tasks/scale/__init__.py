"""The scale stage."""
