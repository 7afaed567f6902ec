"""Cost models as files."""

from __future__ import annotations

import json

from forerun.errors import ForerunError
from forerun.horizons.cost import FORMAT as TABLE_FORMAT
from forerun.horizons.cost import CostTable
from forerun.horizons.cost_model import CostModel
from forerun.horizons.cost_surface import FORMAT as SURFACE_FORMAT
from forerun.horizons.cost_surface import CostSurface

_READERS: dict[object, type[CostModel]] = {SURFACE_FORMAT: CostSurface, TABLE_FORMAT: CostTable}


def read_costs(text: str) -> CostModel:
    """A cost table or surface from its JSON text.

    Raises:
        ForerunError: no JSON, neither of the two formats, or a key is missing, unknown or of the wrong kind.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ForerunError(f"cost file: not a JSON text ({error})") from error
    found = data.get("format") if isinstance(data, dict) else None
    if found not in _READERS:
        raise ForerunError(f"cost file: format is {found!r}; forerun profile writes {SURFACE_FORMAT!r}")
    return _READERS[found].from_state_dict(data)
