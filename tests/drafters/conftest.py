"""Shared by the drafter tests."""

from collections.abc import Iterator

import jaxtyping
import pytest


@pytest.fixture
def unchecked_shapes() -> Iterator[None]:
    """Without the annotation checks, which cost several times the work itself: for tests of thousands of drafts."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
