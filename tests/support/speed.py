"""Tests that do thousands of small things can leave the annotation checks out, which cost several times the work."""

from collections.abc import Iterator
from contextlib import contextmanager

import jaxtyping


@contextmanager
def without_shape_checks() -> Iterator[None]:
    """For the length of the block."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
