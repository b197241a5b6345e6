"""The numerics stage."""
