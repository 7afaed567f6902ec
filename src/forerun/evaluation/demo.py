"""The demonstration: plain, best fixed and adaptive decoding of the same prompts, in turn, at two temperatures.

Everything is measured here and nothing is judged; the result is a dictionary in the report's format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from forerun.distributions import SamplingParams
from forerun.drafters import Drafter
from forerun.engine import Generation, RoundTotals, generate
from forerun.evaluation.origin import result_origin
from forerun.evaluation.paired import SpeedPair, SpeedRatio, speed_ratio
from forerun.evaluation.pilot import Pilot, run_pilot
from forerun.evaluation.trace import Tracer
from forerun.horizons import AMTP, FixedHorizon, HorizonPolicy
from forerun.models import TransformersTarget

PLAIN = "plain"
ADAPTIVE = "AMTP"
TASKS = ("math", "code", "chat")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPrompt:
    """A prompt of the demonstration."""

    id: str
    task: str
    text: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DemoConfig:
    """How much is measured.

    Attributes:
        prompts_per_task: prompts measured in each of math, code and chat.
        max_new_tokens: of each measured answer; stop ids are passed over, so that every answer has this length.
        pilot_tokens: of each pilot answer.
        temperatures: 0 is greedy.
        seeds: one repetition each.
        quick: the short version.
    """

    prompts_per_task: int
    max_new_tokens: int
    pilot_tokens: int
    temperatures: tuple[float, ...] = (0.0, 1.0)
    seeds: tuple[int, ...] = (0,)
    quick: bool = False

    @property
    def num_answers(self) -> int:
        """Answers that the measurement decodes, all arms together."""
        return 3 * self.prompts_per_task * len(TASKS) * len(self.temperatures) * len(self.seeds)


@final
@dataclass(frozen=True, slots=True)
class _Arm:
    name: str
    drafter: Drafter | None
    policy: HorizonPolicy


@final
@dataclass(frozen=True, slots=True)
class _Measured:
    arm: str
    task: str
    temperature: float
    pair: tuple[str, int]  # prompt and seed
    totals: RoundTotals
    exact: bool


def split_prompts(prompts: list[DemoPrompt], per_task: int) -> tuple[list[DemoPrompt], list[DemoPrompt]]:
    """Pilot prompts (the last of each task) and measured prompts (the first ``per_task`` of each)."""
    by_task = {task: [prompt for prompt in prompts if prompt.task == task] for task in TASKS}
    measured = [prompt for task in TASKS for prompt in by_task[task][:-1][:per_task]]
    return [by_task[task][-1] for task in TASKS], measured


def run_demo(
    target: TransformersTarget,
    drafter: Drafter,
    drafter_sha256: str,
    prompts: list[DemoPrompt],
    config: DemoConfig,
    *,
    command: str,
    on_stage: Callable[[str], None],
    on_answer: Callable[[], None],
) -> dict[str, Any]:
    """Measure and return a result in the report's format.

    Args:
        target: the model.
        drafter: its drafter.
        drafter_sha256: hash of the drafter's weights.
        prompts: all prompts; the pilot's are taken out of them.
        config: how much.
        command: what was typed.
        on_stage: told what begins.
        on_answer: called after each measured answer.
    """
    origin = result_origin(target, format="forerun-demo-1", command=command)
    pilot_prompts, measured_prompts = split_prompts(prompts, config.prompts_per_task)
    pilots: dict[float, Pilot] = {}
    for temperature in config.temperatures:
        on_stage(f"Pilot at temperature {temperature:g}")
        pilots[temperature] = run_pilot(
            target,
            drafter,
            [prompt.text for prompt in pilot_prompts],
            sampling=SamplingParams(temperature=temperature),
            max_new_tokens=config.pilot_tokens,
            seed=config.seeds[0],
        )
    on_stage("Measuring")
    arms = {temperature: _arms(drafter, pilot) for temperature, pilot in pilots.items()}
    measured: list[_Measured] = []
    traces: list[dict[str, Any]] = []
    for turn, seed in enumerate(config.seeds):
        for request, prompt in enumerate(measured_prompts):
            first = (turn + request) % 3  # each arm goes first equally often at every temperature
            for temperature in config.temperatures:
                order = arms[temperature][first:] + arms[temperature][:first]
                for arm in order:
                    answer = generate(
                        target,
                        prompt.text,
                        drafter=arm.drafter,
                        horizon=arm.policy,
                        sampling=SamplingParams(temperature=temperature),
                        max_new_tokens=config.max_new_tokens,
                        ignore_stop_ids=True,
                        seed=seed,
                        request=request,
                    )
                    totals = answer.totals
                    pair = (prompt.id, seed)
                    measured.append(_Measured(arm.name, prompt.task, temperature, pair, totals, answer.exact))
                    if prompt == measured_prompts[0] and seed == config.seeds[0]:
                        traces.append(_trace(target, answer, arm.name, prompt, temperature))
                    on_answer()
    return {
        **origin,
        "quick": config.quick,
        "drafter": {"name": drafter.name, "sha256": drafter_sha256},
        "seeds": list(config.seeds),
        "max_new_tokens": config.max_new_tokens,
        "runs": _runs(measured),
        "traces": traces,
        "cost_curve": _cost_curve(pilots[config.temperatures[0]]),
    }


def _arms(drafter: Drafter, pilot: Pilot) -> list[_Arm]:
    fixed = pilot.best_fixed_horizon
    # AMTP starts from what the pilot saw, as the fixed arm does, and goes on learning through the measurement.
    adaptive = AMTP(costs=pilot.cost_table, prior_hazards=pilot.hazards, warmup_rounds=0)
    return [
        _Arm(PLAIN, None, FixedHorizon(0)),
        _Arm(f"fixed k={fixed}", drafter, FixedHorizon(fixed)),
        _Arm(ADAPTIVE, drafter, adaptive),
    ]


def _runs(measured: list[_Measured]) -> list[dict[str, Any]]:
    runs = []
    for task in (*TASKS, "all"):
        chosen = [each for each in measured if task in (each.task, "all")]
        for temperature, arm in dict.fromkeys((each.temperature, each.arm) for each in chosen):
            own = {each.pair: each.totals for each in chosen if (each.temperature, each.arm) == (temperature, arm)}
            plain = {each.pair: each.totals for each in chosen if (each.temperature, each.arm) == (temperature, PLAIN)}
            ratio = None if arm == PLAIN else speed_ratio(_pairs(own, plain), seed=0)
            exact = all(each.exact for each in chosen if each.arm == arm)
            runs.append(_run(arm, task, temperature, list(own.values()), exact, ratio))
    # arms are listed in the order in which they first appear: plain, the fixed ones of all temperatures, adaptive
    return sorted(runs, key=lambda run: (run["arm"] != PLAIN, run["arm"] == ADAPTIVE))


def _pairs(own: dict[Any, RoundTotals], plain: dict[Any, RoundTotals]) -> list[SpeedPair]:
    return [
        SpeedPair(
            tokens=totals.emitted,
            seconds=totals.seconds,
            baseline_tokens=plain[pair].emitted,
            baseline_seconds=plain[pair].seconds,
        )
        for pair, totals in own.items()
    ]


def _run(
    arm: str, task: str, temperature: float, answers: list[RoundTotals], exact: bool, ratio: SpeedRatio | None
) -> dict[str, Any]:
    total = sum(answers, RoundTotals())
    padding = len(total.drafted_by_position) - len(total.accepted_by_position)
    return {
        "arm": arm,
        "task": task,
        "temperature": temperature,
        "exact": exact,
        "num_prompts": len(answers),
        "rounds": total.rounds,
        "rounds_without_drafts": total.rounds_without_drafts,
        "rounds_beyond_drafter": total.rounds_beyond_drafter,
        "emitted_tokens": total.emitted,
        "drafted_tokens": total.drafted,
        "accepted_tokens": total.accepted,
        "drafted_by_position": list(total.drafted_by_position),
        "accepted_by_position": [*total.accepted_by_position, *[0] * padding],
        "seconds": {
            "controller": total.controller_seconds,
            "draft": total.draft_seconds,
            "verify": total.verify_seconds,
            "commit": total.commit_seconds,
        },
        "ratio_to_plain": None
        if ratio is None
        else {"estimate": ratio.estimate, "low": ratio.low, "high": ratio.high, "num_pairs": ratio.num_pairs},
    }


def _trace(
    target: TransformersTarget, answer: Generation, arm: str, prompt: DemoPrompt, temperature: float
) -> dict[str, Any]:
    tracer = Tracer(target.tokenizer)
    return {
        "arm": arm,
        "task": prompt.task,
        "temperature": temperature,
        "prompt": prompt.text,
        "opening": tracer.opening(answer),
        "rounds": [tracer.round(record) for record in answer],
    }


def _cost_curve(pilot: Pilot) -> dict[str, Any]:
    return {
        "plain_seconds": pilot.costs[0].round_seconds,
        "context_length": pilot.context_length,
        "num_repeats": min(cost.num_rounds for cost in pilot.costs),
        "points": [
            {
                "horizon": cost.horizon,
                "draft_seconds": cost.draft_seconds,
                "verify_seconds": max(cost.round_seconds - cost.draft_seconds, cost.verify_seconds),
            }
            for cost in pilot.costs
        ],
    }
