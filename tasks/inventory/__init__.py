"""The inventory stage."""
