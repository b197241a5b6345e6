"""Whether the reference itself is right."""
