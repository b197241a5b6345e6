"""One step of training, held against the reference's."""
