"""forerun: train speculative drafters and decode with them, exactly.

The public names load what they need when they are first used, so that ``import forerun.horizons`` stays free of torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forerun import horizons, losses, verification
    from forerun.distributions import SamplingParams
    from forerun.drafters import load_drafter
    from forerun.engine import generate, generate_batch
    from forerun.errors import ForerunError
    from forerun.models import load_target
    from forerun.recipes import embedded_drafter

__all__ = [
    "ForerunError",
    "SamplingParams",
    "embedded_drafter",
    "generate",
    "generate_batch",
    "horizons",
    "load_drafter",
    "load_target",
    "losses",
    "verification",
]

_HOMES = {
    "ForerunError": "forerun.errors",
    "SamplingParams": "forerun.distributions",
    "embedded_drafter": "forerun.recipes",
    "generate": "forerun.engine",
    "generate_batch": "forerun.engine",
    "load_drafter": "forerun.drafters",
    "load_target": "forerun.models",
}


def __getattr__(name: str) -> object:
    """Load a public name (PEP 562)."""
    if name in _HOMES:
        return vars(importlib.import_module(_HOMES[name]))[name]
    if name in __all__:
        return importlib.import_module(f"forerun.{name}")
    raise AttributeError(f"module 'forerun' has no attribute {name!r}")
