"""All paired measurements, as tables and one JSON line.

    python -m benchmarks [--quick] [PART ...]

Parts: controller, drafters, engine, losses, verify_width. Progress and tables go to standard error, the JSON line to
standard output.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from benchmarks import controller, drafters, engine, losses, verify_width
from benchmarks.timing import machine

PARTS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "controller": controller.measure,
    "drafters": drafters.measure,
    "engine": lambda quick: engine.measure(quick=quick),
    "losses": losses.measure,
    "verify_width": lambda quick: verify_width.measure(repeats=5 if quick else 15),
}


def main(arguments: list[str]) -> int:
    """Run the parts and print their results."""
    flags = {argument for argument in arguments if argument.startswith("-")}
    chosen = [argument for argument in arguments if argument not in flags] or list(PARTS)
    unknown = sorted({*flags} - {"--quick"}) + [part for part in chosen if part not in PARTS]
    if unknown:
        print(f"{unknown[0]} is unknown; give --quick and any of {', '.join(PARTS)}", file=sys.stderr)
        return 2
    results = {}
    for part in chosen:
        print(f"Measuring {part} ...", file=sys.stderr)
        results[part] = PARTS[part]("--quick" in flags)
    print(json.dumps({"machine": machine(), **results}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
