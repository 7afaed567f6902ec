"""Regret of AMTP's theory mode against time and path length, many seeded runs side by side.

    python -m benchmarks.horizon_regret [--quick] [--result FILE]

The analysis bounds the regret by T^3/4 (1 + P)^1/4 with full and T^4/5 (1 + P)^1/5 with partial feedback, so slopes on
log-log axes may not exceed these exponents. Every run is also held against the completion-time bound S_N.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import machine
from forerun import environment
from forerun.evaluation.simulator.theory import TheoryRuns, TheorySetting, theory_runs

ROUNDS = (1_000, 10_000, 100_000, 1_000_000)
PATH_ROUNDS, PATHS = 100_000, (0.0, 1.0, 4.0, 16.0, 64.0)
SEEDS, PATH_LENGTH, RESAMPLES = 16, 1.0, 10_000
KINDS = ("full", "partial")
LIMITS = {"full": 0.75, "partial": 0.8}
TOLERANCE = 0.05
SETTING = TheorySetting()


def measure(*, quick: bool) -> dict[str, Any]:
    """Run everything; ``quick`` stops at ten thousand rounds."""
    origin = {
        "format": "forerun-horizon-regret-1",
        "commit": environment.source_commit(),
        "command": "python -m benchmarks.horizon_regret" + (" --quick" if quick else ""),
        "machine": machine(),
    }
    partial = np.arange(2 * SEEDS) >= SEEDS
    by_time = []
    for rounds in ROUNDS[: 2 if quick else None]:
        runs = theory_runs(
            SETTING, rounds=rounds, path_lengths=np.full(2 * SEEDS, PATH_LENGTH), partial=partial, seed=1
        )
        by_time.append(runs)
        print(f"{rounds} rounds: " + _spoken(runs, partial), file=sys.stderr, flush=True)
    path_rounds = 2_000 if quick else PATH_ROUNDS
    by_path = theory_runs(
        SETTING,
        rounds=path_rounds,
        path_lengths=np.repeat(PATHS, 2 * SEEDS),
        partial=np.tile(partial, len(PATHS)),
        seed=2,
    )
    regret = by_path.regret.reshape(len(PATHS), 2, SEEDS)
    everything = [*by_time, by_path]
    return {
        **origin,
        "setting": asdict(SETTING),
        "seeds": SEEDS,
        "path_length": PATH_LENGTH,
        "slopes": {
            kind: _slope(
                np.log([runs.rounds for runs in by_time]),
                np.stack([runs.regret[partial == (kind == "partial")] for runs in by_time]),
                LIMITS[kind],
            )
            for kind in KINDS
        },
        "by_rounds": [
            {"rounds": runs.rounds, **{kind: _summary(runs, partial == (kind == "partial")) for kind in KINDS}}
            for runs in by_time
        ],
        "path_dependence": {
            "rounds": path_rounds,
            "path_lengths": list(PATHS),
            **{
                kind: {
                    "mean_regret": regret[:, index].mean(axis=1).tolist(),
                    "standard_error": (regret[:, index].std(axis=1, ddof=1) / SEEDS**0.5).tolist(),
                    "exponent": _slope(np.log1p(PATHS), regret[:, index], 1.0 - LIMITS[kind]),
                }
                for index, kind in enumerate(KINDS)
            },
        },
        "speedup_bound": {
            "runs": sum(len(runs.regret) for runs in everything),
            "broken": sum(int((runs.speedup(SETTING) < runs.speedup_bound(SETTING)).sum()) for runs in everything),
            "least_ratio": min(
                float((runs.speedup(SETTING) / runs.speedup_bound(SETTING)).min()) for runs in everything
            ),
        },
    }


def _summary(runs: TheoryRuns, chosen: np.ndarray) -> dict[str, Any]:
    regret = runs.regret[chosen]
    return {
        "mean_regret": float(regret.mean()),
        "standard_error": float(regret.std(ddof=1) / len(regret) ** 0.5),
        "regret": regret.tolist(),
        "mean_squared_error_per_round": float(runs.squared_error[chosen].mean() / runs.rounds),
        "mean_speedup": float(runs.speedup(SETTING)[chosen].mean()),
        "mean_speedup_bound": float(runs.speedup_bound(SETTING)[chosen].mean()),
    }


def _slope(logs: np.ndarray, regret: np.ndarray, limit: float) -> dict[str, Any]:
    """Least squares of log mean regret, with a bootstrap over runs: (points, runs)."""
    picks = np.random.default_rng(0).integers(regret.shape[1], size=(RESAMPLES, regret.shape[1]))
    means = np.log(regret[:, picks].mean(axis=2))  # (points, resamples)
    centred = logs - logs.mean()
    slopes = centred @ means / (centred @ centred)
    estimate = float(centred @ np.log(regret.mean(axis=1)) / (centred @ centred))
    low, high = np.quantile(slopes, [0.025, 0.975]).tolist()
    return {
        "estimate": estimate,
        "low": low,
        "high": high,
        "exponent_of_the_bound": limit,
        "holds": high <= limit + TOLERANCE,
    }


def _spoken(runs: TheoryRuns, partial: np.ndarray) -> str:
    return ", ".join(f"{kind} {runs.regret[partial == (kind == 'partial')].mean():.1f} regret" for kind in KINDS)


def main(arguments: list[str]) -> int:
    """Measure and print or write the result."""
    result = measure(quick="--quick" in arguments)
    if "--result" in arguments:
        path = Path(arguments[arguments.index("--result") + 1])
        result["command"] += f" --result {path}"
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({kind: result["slopes"][kind] for kind in KINDS}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
