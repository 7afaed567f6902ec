"""From rows to one table: speeds and shares of the per-context oracle with intervals, calibration, recovery."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean, median
from typing import Any

from forerun.evaluation.comparison.rows import ComparisonRow
from forerun.evaluation.paired import SpeedPair, speed, speed_ratio

REFERENCES = ("per context", "per context (estimated)", "clairvoyant")
"""What shares are of: the first of these oracles that the rows have."""


def summarise(rows: Sequence[ComparisonRow]) -> list[dict[str, Any]]:
    """One entry for each world and regime, controllers and oracles fastest first.

    Intervals are bootstraps over answers, pairs of the same answer for the shares: texts, and on simulated worlds their
    luck, are the same for all. Seeds that change the coins only (recorded texts) are summed up answer by answer first.
    """
    scenes: defaultdict[tuple[str, str], list[ComparisonRow]] = defaultdict(list)
    for row in rows:
        scenes[row.world, row.regime].append(row)
    return [{"world": world, "regime": regime, **_scene(own)} for (world, regime), own in scenes.items()]


def _scene(rows: list[ComparisonRow]) -> dict[str, Any]:
    by_name: defaultdict[str, list[ComparisonRow]] = defaultdict(list)
    for row in rows:
        # the best fixed horizon may be another one in another seed
        by_name["best fixed" if row.oracle and row.policy.startswith("best fixed") else row.policy].append(row)
    reference = next(name for name in REFERENCES if name in by_name)
    entries = [_entry(name, own, by_name[reference]) for name, own in by_name.items()]
    entries.sort(key=lambda entry: -entry["tokens_per_second"]["estimate"])
    return {
        "seeds": sorted({row.seed for row in rows}),
        "answers_per_seed": len(rows[0].emitted),
        "tokens_per_seed": sum(rows[0].emitted),
        "share_of": reference,
        "entries": entries,
    }


def _entry(name: str, rows: list[ComparisonRow], reference: list[ComparisonRow]) -> dict[str, Any]:
    calibrations = [row.calibration for row in rows if row.calibration is not None]
    errors = [each.hazard_error for each in calibrations if each.hazard_error is not None]
    recovery = [rounds for row in rows for rounds in row.recovery]
    regrets = [row.mean_regret for row in rows if row.mean_regret is not None]
    horizons = [row.mean_horizon for row in rows if row.mean_horizon is not None]
    names = sorted({row.policy for row in rows})
    answers = _by_answer(rows, settled=False)
    return {
        "policy": name if names == [name] else " / ".join(names),
        "oracle": rows[0].oracle,
        "tokens_per_second": asdict(
            speed([tokens for tokens, _ in answers.values()], [seconds for _, seconds in answers.values()], seed=0)
        ),
        "share": throughput_ratio(rows, reference),
        "share_after_5000_rounds": None if rows[0].oracle else throughput_ratio(rows, reference, settled=True),
        "mean_horizon": fmean(horizons) if horizons else None,
        "mean_regret": fmean(regrets) if regrets else None,
        "brier": fmean(each.brier for each in calibrations) if calibrations else None,
        "ece": fmean(each.ece for each in calibrations) if calibrations else None,
        "hazard_error": fmean(errors) if errors else None,
        "recovery_rounds": {"median": median(recovery), "worst": max(recovery), "n": len(recovery)}
        if recovery
        else None,
    }


def throughput_ratio(
    rows: Sequence[ComparisonRow], reference: Sequence[ComparisonRow], *, settled: bool = False
) -> dict[str, Any] | None:
    """Tokens per second over the reference's, on the same answers; ``None`` with fewer than two.

    Args:
        rows: of one controller in one world and regime, one for each seed.
        reference: of another.
        settled: only answers that begin after 5,000 rounds.
    """
    own, other = _by_answer(rows, settled=settled), _by_answer(reference, settled=False)
    pairs = [
        SpeedPair(tokens=tokens, seconds=seconds, baseline_tokens=other[answer][0], baseline_seconds=other[answer][1])
        for answer, (tokens, seconds) in own.items()
    ]
    ratio = speed_ratio(pairs, seed=0)
    return None if ratio is None else asdict(ratio)


def _by_answer(rows: Sequence[ComparisonRow], *, settled: bool) -> dict[tuple[int, int], tuple[int, float]]:
    """Tokens and seconds of each answer, all seeds of the same texts together: other coins are no other answers."""
    of_texts: defaultdict[int, list[ComparisonRow]] = defaultdict(list)
    for row in rows:
        of_texts[row.texts].append(row)
    found = {}
    for texts, own in of_texts.items():
        starts = [row.settled if settled else 0 for row in own]
        first = max((start for start in starts if start is not None), default=None)
        if first is not None and None not in starts:
            for answer in range(first, len(own[0].emitted)):
                found[texts, answer] = sum(row.emitted[answer] for row in own), sum(row.seconds[answer] for row in own)
    return found
