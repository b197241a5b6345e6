"""Value types, protocols and errors that all adapters share."""
