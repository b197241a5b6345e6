"""Everything that touches the outside: files, models, stacks, hardware. Knows no stage and no finding."""
