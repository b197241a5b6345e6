"""Vision tower and projector on images: the same walk, from the model's own function for image features."""
