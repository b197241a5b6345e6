"""Acme's adapter for Day0."""
