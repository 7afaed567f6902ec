"""The real target and the shipped drafter, for the few tests that need them."""

from __future__ import annotations

from functools import lru_cache

import pytest

from forerun.drafters import Drafter, load_drafter
from forerun.errors import ForerunError
from forerun.models import TransformersTarget, load_target
from forerun.recipes import embedded_drafter


@lru_cache(maxsize=1)
def real_target() -> TransformersTarget:
    """SmolLM2-135M-Instruct in float32; skips where it is neither in the cache nor to be had."""
    try:
        return load_target()
    except ForerunError as error:
        pytest.skip(f"the embedded target is not available: {error}")


@lru_cache(maxsize=1)
def shipped_drafter() -> Drafter:
    """The drafter inside the package; every check of the loader runs."""
    folder = embedded_drafter(real_target().name)
    assert folder is not None, "the package ships a drafter for the embedded target"
    return load_drafter(folder, real_target())
