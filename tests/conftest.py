"""Settings shared by every test: one thread, and reproducible property tests."""

import os

from hypothesis import HealthCheck, settings

# Before torch is imported anywhere: two threads stall each other on small shared machines.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Deadlines measure the machine, not the code; a fixed choice of examples lets a red test be seen again.
settings.register_profile("repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
# For a search with fresh examples: pytest --hypothesis-profile=explore
settings.register_profile("explore", parent=settings.get_profile("repeatable"), derandomize=False, max_examples=1000)
settings.load_profile("repeatable")
