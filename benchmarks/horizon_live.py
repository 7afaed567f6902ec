"""Live runs of the controllers that replay found fastest, beside their replays and plain decoding.

    python -m benchmarks.horizon_live RECORDING RESULT [--prompts N] [--policies N] [--tokens N]

RESULT is the file that ``forerun replay`` or ``forerun compare horizons --recording`` wrote; the live part is added to
it. Controllers are told the recording's costs, so their rounds can be compared with the replay's one by one; speeds are
measured in processor time, in turn on every prompt, prefill excluded. Finished prompts are kept in RESULT.live: an
interrupted run goes on where it stopped.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, final

from pydantic import TypeAdapter

from forerun import environment
from forerun.cli.compare import policy_factory
from forerun.distributions import SamplingParams
from forerun.drafters import load_drafter
from forerun.engine import generate
from forerun.evaluation import SpeedPair, speed_ratio
from forerun.evaluation.comparison import starting_table
from forerun.evaluation.recording import (
    RecordedAnswer,
    Recording,
    read_recording,
    recorded_costs,
    recorded_track,
    shortened,
)
from forerun.evaluation.replay import Priced, Track, replay
from forerun.horizons import CostTable, HorizonPolicy
from forerun.models import load_target
from forerun.recipes import HORIZONS, embedded_drafter, shipped_prompts
from forerun.verification import Agreement

COSTS = "cached"
PLAIN = "0"


def fastest(result: dict[str, Any], count: int) -> list[str]:
    """Adaptive controllers with the largest mean share over the temperatures, cached costs; AMTP always among them.

    Negative controls are left out: they are exact under agreement alone.
    """
    shares: dict[str, list[float]] = {}
    for scene in result["scenes"]:
        if scene["regime"] == COSTS:
            for entry in scene["entries"]:
                name = entry["policy"]
                if not entry["oracle"] and name in HORIZONS and HORIZONS[name](None).exact:
                    shares.setdefault(name, []).append(entry["share"]["estimate"])
    ranked = sorted(shares, key=lambda name: -fmean(shares[name]))
    return ["amtp", *(name for name in ranked if name != "amtp")][:count]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAnswer:
    """One prompt decoded by one controller.

    Attributes:
        temperature: of the answer.
        prompt: id.
        policy: name.
        rounds: drafted and emitted tokens of each.
        emitted: tokens.
        seconds: of processor time.
        same_text: as recorded.
    """

    temperature: float
    prompt: str
    policy: str
    rounds: list[tuple[int, int]]
    emitted: int
    seconds: float
    same_text: bool


_LINE = TypeAdapter(LiveAnswer)


@final
@dataclass(frozen=True, slots=True)
class Stage:
    """What belongs to one temperature: texts, the controllers that learn from them, and what they did."""

    answers: list[RecordedAnswer]
    tracks: list[Track]
    table: CostTable
    live: dict[str, Priced]
    said: dict[str, list[LiveAnswer]]


def measure(
    recording: Recording, names: list[str], *, num_prompts: int, num_tokens: int, journal: Path
) -> dict[str, Any]:
    """Decode the first prompts of the recording live, with every controller and without.

    Args:
        recording: the texts.
        names: of controllers.
        num_prompts: how many.
        num_tokens: of each answer.
        journal: keeps finished prompts; controllers of an interrupted run learn them again from the recording.
    """
    header = recording.header
    target = load_target(header.target["name"])
    folder = embedded_drafter(target.name)
    assert folder is not None, "the recording was made with the shipped drafter"
    drafter = load_drafter(folder, target)
    texts = {prompt.id: prompt.text for prompt in shipped_prompts(len(header.prompts))}
    kept = _kept(journal)
    stages = {
        temperature: _stage(recording, temperature, names, num_prompts, num_tokens)
        for temperature in header.temperatures
    }  # fmt: skip
    for turn, (temperature, stage) in product(range(num_prompts), stages.items()):
        answer, names_here = stage.answers[turn], list(stage.live)
        known = [kept.get((temperature, answer.prompt, name)) for name in names_here]
        fresh: list[LiveAnswer] = []
        for name in names_here[turn % len(names_here) :] + names_here[: turn % len(names_here)]:
            earlier = known[names_here.index(name)]
            if None not in known and earlier is not None:
                replay(stage.live[name].inner, [stage.tracks[turn]], recorded_costs(header, COSTS))
                stage.said[name].append(earlier)
                continue
            spoken = generate(
                target, texts[answer.prompt], drafter=drafter, horizon=stage.live[name],
                sampling=SamplingParams(temperature=temperature), max_new_tokens=num_tokens,
                ignore_stop_ids=header.ignore_stop_ids, seed=header.seed, request=answer.number, rule=Agreement(),
            )  # fmt: skip
            assert spoken.prefill is not None
            started = time.process_time()
            totals = spoken.totals
            fresh.append(
                LiveAnswer(
                    temperature=temperature, prompt=answer.prompt, policy=name,
                    rounds=[(record.depth, len(record.token_ids)) for record in spoken.records],
                    emitted=totals.emitted, seconds=time.process_time() - started,
                    same_text=tuple(spoken.token_ids) == answer.token_ids,
                )
            )  # fmt: skip
            stage.said[name].append(fresh[-1])
        with journal.open("a", encoding="utf-8") as sink:
            sink.write("".join(_LINE.dump_json(each).decode() + "\n" for each in fresh))
        print(f"temperature {temperature:g}, {answer.prompt}", file=sys.stderr, flush=True)
    return {f"{temperature:g}": _measured(stage, recording) for temperature, stage in stages.items()}


def _stage(recording: Recording, temperature: float, names: list[str], num_prompts: int, num_tokens: int) -> Stage:
    header = recording.header
    answers = [
        shortened(answer, num_tokens)
        for answer in recording.answers
        if answer.temperature == temperature and answer.prompt in header.prompts[:num_prompts]
    ]
    tracks = [recorded_track(answer, coin_seed=header.seed) for answer in answers]
    costs = recorded_costs(header, COSTS)
    table = starting_table(tracks, costs)
    live = {name: Priced(policy_factory(name)(table), costs) for name in [*names, PLAIN]}
    return Stage(answers, tracks, table, live, {name: [] for name in live})


def _measured(stage: Stage, recording: Recording) -> dict[str, Any]:
    return {
        name: {
            "answers": len(own),
            "answers_with_the_recorded_text": sum(each.same_text for each in own),
            **_gap(
                [pair for each in own for pair in each.rounds],
                policy_factory(name)(stage.table),
                stage.tracks,
                recording,
            ),
            "tokens": sum(each.emitted for each in own),
            "processor_seconds": sum(each.seconds for each in own),
            "ratio_to_plain": _ratio(own, stage.said[PLAIN]),
        }
        for name, own in stage.said.items()
    }


def _kept(journal: Path) -> dict[tuple[float, str, str], LiveAnswer]:
    """Whole lines only: a kill may have cut the last one."""
    if not journal.is_file():
        return {}
    whole, _, _ = journal.read_text(encoding="utf-8").rpartition("\n")
    lines = [_LINE.validate_json(line) for line in whole.split("\n") if line]
    return {(line.temperature, line.prompt, line.policy): line for line in lines}


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


def _ratio(own: list[LiveAnswer], plain: list[LiveAnswer]) -> dict[str, Any] | None:
    pairs = [
        SpeedPair(
            tokens=one.emitted, seconds=one.seconds, baseline_tokens=other.emitted, baseline_seconds=other.seconds
        )
        for one, other in zip(own, plain, strict=True)
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
    recording = read_recording(recording_path)
    num_tokens = options.get("--tokens", recording.header.max_new_tokens)
    measured = measure(
        recording, names, num_prompts=options.get("--prompts", 6), num_tokens=num_tokens,
        journal=Path(f"{result_path}.live"),
    )  # fmt: skip
    result["live"] = {**origin, "temperatures": measured}
    result_path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result["live"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
