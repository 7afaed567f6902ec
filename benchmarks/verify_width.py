"""What verifying several tokens costs beside one, for each way of laying a target's weights out.

A narrow pass reads every weight once whatever its width, so a wide verification should cost little more than a single
token; how much more depends on the kernel that the layout gets. All variants and widths take turns, so that a slow
spell of the machine hits all alike; the clock is the process's CPU time, which other processes disturb less.

    python -m benchmarks.verify_width --repeats 15
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from benchmarks.timing import interleaved, machine
from forerun.models import TransformersTarget, load_target

WIDTHS = (1, 2, 4, 8, 16)


def plain(name: str) -> TransformersTarget:
    """``nn.Linear`` as transformers loads it."""
    return load_target(name, optimize=False)


def optimized(name: str) -> TransformersTarget:
    """What ``--optimize`` does on a CPU."""
    return load_target(name, optimize=True)


def compiled(name: str) -> TransformersTarget:
    """The MLP of every layer through ``torch.compile``; attention stays eager, since its cache changes shape."""
    target = load_target(name, optimize=False)
    for layer in target.layers:
        layer.get_submodule("mlp").compile(dynamic=False)
    return target


VARIANTS: dict[str, Callable[[str], TransformersTarget]] = {
    "plain": plain,
    "optimized": optimized,
    "compiled": compiled,
}


@torch.inference_mode()
def measure(
    name: str = "smollm2-135m",
    *,
    variants: Sequence[str] = ("plain", "optimized"),
    widths: Sequence[int] = WIDTHS,
    context: int = 128,
    repeats: int = 15,
) -> dict[str, Any]:
    """CPU milliseconds of one forward pass by variant and width.

    Args:
        name: a target.
        variants: keys of ``VARIANTS``.
        widths: tokens of a pass.
        context: tokens in the cache before it.
        repeats: interleaved measurements of every cell.

    Returns:
        Medians in milliseconds, and their ratios to the first width of the same variant.
    """
    ids = torch.arange(context + max(widths)) * 37 % 10_000 + 100
    targets = {variant: VARIANTS[variant](name) for variant in variants}
    caches = {variant: target.new_cache() for variant, target in targets.items()}
    for variant, target in targets.items():
        target.forward(ids[:context], caches[variant], num_logits=1)

    def one_pass(variant: str, width: int) -> None:
        targets[variant].forward(ids[context : context + width], caches[variant])
        caches[variant].rollback(context)

    cells = {(variant, width): f"{variant} {width}" for variant in variants for width in widths}
    seconds = interleaved(
        {name: partial(one_pass, *cell) for cell, name in cells.items()}, repeats=repeats, clock=time.process_time
    )
    medians = {cell: 1e3 * statistics.median(seconds[name]) for cell, name in cells.items()}
    return {
        "benchmark": "verify_width",
        "target": name,
        "context": context,
        "n": repeats,
        "unit": "CPU milliseconds, median",
        "milliseconds": {v: {str(w): round(medians[v, w], 2) for w in widths} for v in variants},
        "ratio_to_first_width": {
            v: {str(w): round(medians[v, w] / medians[v, widths[0]], 3) for w in widths} for v in variants
        },
        "machine": machine(),
    }


def main() -> None:
    """Print a table and, last, one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="smollm2-135m", help="name, folder or hub id")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=["plain", "optimized"])
    parser.add_argument("--widths", nargs="+", type=int, default=WIDTHS, metavar="TOKENS")
    parser.add_argument("--context", type=int, default=128, metavar="TOKENS")
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    result = measure(
        options.target,
        variants=options.variants,
        widths=options.widths,
        context=options.context,
        repeats=options.repeats,
    )
    for variant, row in result["milliseconds"].items():
        ratios = result["ratio_to_first_width"][variant]
        print(f"{variant:9}", "  ".join(f"{width}: {row[width]:.1f} ms ({ratios[width]:.2f}x)" for width in row))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
