"""What is run: texts, token ids, and the forwards that a comparison makes of them."""
