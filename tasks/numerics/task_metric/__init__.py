"""Questions with known answers, asked on both sides."""
