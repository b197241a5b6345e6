"""Which parts of a model tolerate a lower precision."""
