"""How far a tensor is from the reference's, and what of that rounding explains."""
