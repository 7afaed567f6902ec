"""Strict reading of plain data (what `json.loads` returns): exact keys, exact kinds, finite numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from forerun.errors import ForerunError


def check_keys(data: object, keys: Sequence[str], what: str) -> Mapping[str, object]:
    """The mapping itself when its keys are exactly `keys`.

    Raises:
        ForerunError: not a mapping, or the missing and the unknown keys by name.
    """
    if not isinstance(data, Mapping):
        raise ForerunError(f"{what}: expected an object with the keys {', '.join(keys)}, got {type(data).__name__}")
    missing = [key for key in keys if key not in data]
    unknown = [str(key) for key in data if key not in keys]
    if missing or unknown:
        raise ForerunError(f"{what}: missing keys {missing or 'none'}, unknown keys {unknown or 'none'}")
    return data


def check_same(state: Mapping[str, object], expected: Mapping[str, object], what: str) -> None:
    """Refuse a saved state that belongs to another kind of object.

    Raises:
        ForerunError: the first entry that differs, with both values.
    """
    for key, mine in expected.items():
        if state[key] != mine:
            raise ForerunError(f"{what}: {key} is {state[key]!r}, this policy reads {mine!r}")


def read_float(value: object, what: str) -> float:
    """A finite number as float, or ForerunError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ForerunError(f"{what}: expected a finite number, got {value!r}")
    return float(value)


def read_int(value: object, what: str) -> int:
    """A count (an integer, at least 0), or ForerunError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ForerunError(f"{what}: expected a count, got {value!r}")
    return value


def read_bool(value: object, what: str) -> bool:
    """True or False, or ForerunError."""
    if not isinstance(value, bool):
        raise ForerunError(f"{what}: expected true or false, got {value!r}")
    return value


def read_list(value: object, what: str) -> Sequence[object]:
    """A list, or ForerunError."""
    if not isinstance(value, (list, tuple)):
        raise ForerunError(f"{what}: expected a list, got {type(value).__name__}")
    return value


def read_floats(value: object, what: str) -> list[float]:
    """A list of finite numbers, or ForerunError."""
    return [read_float(item, what) for item in read_list(value, what)]
