"""The walk through the model, node by node: reference, noise arm and target in lockstep."""
