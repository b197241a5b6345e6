"""References that were captured: written, opened, compared with."""
