"""What a vendor runs to prove a target: `day0.testing.conformance`."""
