"""A stack whose package lacks something that it needs."""

import package_that_is_nowhere  # type: ignore[import-not-found]  # noqa: F401  # the fault itself

from day0_worker import Stack


class BrokenStack(Stack):
    name = "faulty_import"
