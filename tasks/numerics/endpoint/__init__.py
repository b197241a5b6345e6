"""A served model, compared by what a server shows."""
