"""Settings shared by every test: one thread, reproducible property tests, and how often annotations are checked."""

import os

import jaxtyping
import pytest
from hypothesis import HealthCheck, settings

from tests.support import annotations

# Before torch is imported anywhere: two threads stall each other on small shared machines.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Deadlines measure the machine, not the code; a fixed choice of examples lets a red test be seen again.
settings.register_profile("repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
# For a search with fresh examples: pytest --hypothesis-profile=explore
settings.register_profile("explore", parent=settings.get_profile("repeatable"), derandomize=False, max_examples=1000)
settings.load_profile("repeatable")

# Before the package is imported anywhere: the import hook that pytest has installed by now decorates with this name.
jaxtyping.jaxtyped = annotations.check_first_calls  # type: ignore[assignment]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    annotations.begin_test()
