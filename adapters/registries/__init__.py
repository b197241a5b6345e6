"""What is known of each target's operators, with evidence."""
