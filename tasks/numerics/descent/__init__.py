"""From a faulty node down to its first faulty operator."""
