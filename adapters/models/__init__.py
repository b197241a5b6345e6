"""Structure: from config and tensor names to a skeleton, and the reference that runs it."""
