"""The minimal stage."""
