"""Live runs of the controllers that replay found fastest, beside their replays and plain decoding.

    python -m benchmarks.horizon_live RECORDING RESULT [--prompts N] [--policies N]

RESULT is the file that ``forerun replay`` or ``forerun compare horizons --recording`` wrote; the live part is added to
it. Controllers are told the recording's costs, so their rounds can be compared with the replay's one by one; speeds are
measured in processor time, in turn on every prompt, prefill excluded.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from forerun import environment
from forerun.cli.compare import policy_factory
from forerun.distributions import SamplingParams
from forerun.drafters import load_drafter
from forerun.engine import generate
from forerun.evaluation import SpeedPair, speed_ratio
from forerun.evaluation.comparison import starting_table
from forerun.evaluation.recording import Recording, read_recording, recorded_costs, recorded_track
from forerun.evaluation.replay import Priced, Track, replay
from forerun.horizons import HorizonPolicy
from forerun.models import load_target
from forerun.recipes import embedded_drafter, shipped_prompts
from forerun.verification import Agreement

COSTS = "cached"
PLAIN = "0"


def fastest(result: dict[str, Any], count: int) -> list[str]:
    """Adaptive controllers with the largest mean share over the temperatures, cached costs; AMTP always among them."""
    shares: dict[str, list[float]] = {}
    for scene in result["scenes"]:
        if scene["regime"] == COSTS:
            for entry in scene["entries"]:
                if not entry["oracle"] and not entry["policy"].isdecimal():
                    shares.setdefault(entry["policy"], []).append(entry["share"]["estimate"])
    ranked = sorted(shares, key=lambda name: -fmean(shares[name]))
    return ["amtp", *(name for name in ranked if name != "amtp")][:count]


def measure(recording: Recording, names: list[str], num_prompts: int) -> dict[str, Any]:
    """Decode the first prompts of the recording live, with every controller and without."""
    header = recording.header
    target = load_target(header.target["name"])
    folder = embedded_drafter(target.name)
    assert folder is not None, "the recording was made with the shipped drafter"
    drafter = load_drafter(folder, target)
    texts = {prompt.id: prompt.text for prompt in shipped_prompts(len(header.prompts))}
    costs = recorded_costs(header, COSTS)
    answers = [answer for answer in recording.answers if answer.prompt in header.prompts[:num_prompts]]
    found: dict[str, Any] = {}
    for temperature in header.temperatures:
        chosen = [answer for answer in answers if answer.temperature == temperature]
        tracks = [recorded_track(answer, coin_seed=header.seed) for answer in chosen]
        table = starting_table(tracks, costs)
        live: dict[str, HorizonPolicy] = {name: Priced(policy_factory(name)(table), costs) for name in [*names, PLAIN]}
        rounds: dict[str, list[tuple[int, int]]] = {name: [] for name in live}
        sums: dict[str, list[tuple[int, float]]] = {name: [] for name in live}
        same_text = {name: 0 for name in live}
        for turn, answer in enumerate(chosen):
            order = list(live)
            for name in order[turn % len(order) :] + order[: turn % len(order)]:
                spoken = generate(
                    target, texts[answer.prompt], drafter=drafter, horizon=live[name],
                    sampling=SamplingParams(temperature=temperature), max_new_tokens=header.max_new_tokens,
                    ignore_stop_ids=header.ignore_stop_ids, seed=header.seed, request=answer.number, rule=Agreement(),
                )  # fmt: skip
                assert spoken.prefill is not None
                started = time.process_time()
                totals = spoken.totals
                seconds = time.process_time() - started
                rounds[name] += [(record.depth, len(record.token_ids)) for record in spoken.records]
                sums[name].append((totals.emitted, seconds))
                same_text[name] += tuple(spoken.token_ids) == answer.token_ids
            print(f"temperature {temperature:g}, {answer.prompt}", file=sys.stderr, flush=True)
        found[f"{temperature:g}"] = {
            name: {
                "answers": len(chosen),
                "answers_with_the_recorded_text": same_text[name],
                **_gap(rounds[name], policy_factory(name)(table), tracks, recording),
                "tokens": sum(tokens for tokens, _ in sums[name]),
                "processor_seconds": sum(seconds for _, seconds in sums[name]),
                "ratio_to_plain": _ratio(sums[name], sums[PLAIN]),
            }
            for name in live
        }
    return found


def _gap(
    rounds: list[tuple[int, int]], policy: HorizonPolicy, tracks: list[Track], recording: Recording
) -> dict[str, Any]:
    """Live rounds against replayed ones, in order, as (drafted, emitted)."""
    run = replay(policy, tracks, recorded_costs(recording.header, COSTS))
    replayed = list(zip(run.horizons.tolist(), run.emitted.tolist(), strict=True))
    equal = sum(left == right for left, right in zip(rounds, replayed, strict=False))
    return {
        "live_rounds": len(rounds),
        "replayed_rounds": len(replayed),
        "equal_rounds": equal,
        "replayed_ratio_to_plain": run.throughput * recording.header.cached_seconds[0],
        "live_tau": sum(emitted for _, emitted in rounds) / len(rounds),
        "replayed_tau": float(run.emitted.sum() / len(run)),
    }


def _ratio(own: list[tuple[int, float]], plain: list[tuple[int, float]]) -> dict[str, Any] | None:
    pairs = [
        SpeedPair(tokens=tokens, seconds=seconds, baseline_tokens=base_tokens, baseline_seconds=base_seconds)
        for (tokens, seconds), (base_tokens, base_seconds) in zip(own, plain, strict=True)
    ]
    ratio = speed_ratio(pairs, seed=0)
    return (
        None
        if ratio is None
        else {"estimate": ratio.estimate, "low": ratio.low, "high": ratio.high, "n": ratio.num_pairs}
    )


def main(arguments: list[str]) -> int:
    """Measure and add to the result."""
    recording_path, result_path = (Path(argument) for argument in arguments[:2])
    options = dict(zip(arguments[2::2], map(int, arguments[3::2]), strict=True))
    result = json.loads(result_path.read_text(encoding="utf-8"))
    names = fastest(result, options.get("--policies", 5))
    origin = {
        "commit": environment.source_commit(),
        "command": f"python -m benchmarks.horizon_live {recording_path.name} {result_path} " + " ".join(arguments[2:]),
        "machine": {"cpu": environment.cpu_name(), "cores": environment.num_cores()},
        "costs_told": COSTS,
    }
    measured = measure(read_recording(recording_path), names, options.get("--prompts", 6))
    result["live"] = {**origin, "temperatures": measured}
    result_path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result["live"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
