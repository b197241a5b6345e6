"""The coverage stage."""
