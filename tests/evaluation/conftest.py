"""Shared by the evaluation tests."""

from collections.abc import Iterator

import pytest

from tests.support.speed import without_shape_checks


@pytest.fixture
def unchecked_shapes() -> Iterator[None]:
    """Without the annotation checks: for tests that replay thousands of rounds."""
    with without_shape_checks():
        yield
