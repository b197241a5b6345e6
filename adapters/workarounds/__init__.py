"""Ways around what a target lacks; all but `registry` and `switches` also run inside the worker."""
