"""What happens, in order: the flows and the command line."""
