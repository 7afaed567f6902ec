"""Proof by experiment that a pair decodes exactly: greedy answers, laws in passes of several tokens, sampled answers.

The proof by enumeration is in the tests, on models small enough for it. This is what can be done with real weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import torch

from forerun.distributions import SamplingParams, law_from_logits
from forerun.drafters import Drafter
from forerun.engine import generate
from forerun.errors import ForerunError
from forerun.evaluation.greedy_verdict import GreedyVerdict, greedy_verdict
from forerun.evaluation.sampling_check import SamplingCheck, check_sampling
from forerun.evaluation.width_difference import WidthDifference, width_differences
from forerun.models import Target
from forerun.verification import Rule

DEFAULT_HORIZONS = (1, 4, 7)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExactnessConfig:
    """How much is checked.

    Attributes:
        horizons: tokens to draft each round, one run each; ``None`` for 1, 4 and 7 as far as the drafter goes.
        max_new_tokens: of each greedy answer.
        num_samples: answers drawn for the statistical check.
        sampled_tokens: of each of them.
        seed: of the sampled answers.
    """

    horizons: tuple[int, ...] | None = None
    max_new_tokens: int = 16
    num_samples: int = 300
    sampled_tokens: int = 2
    seed: int = 0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyRun:
    """One prompt decoded greedily with drafts, against plain decoding."""

    prompt: str
    horizon: int
    drafted: int
    accepted: int
    verdict: GreedyVerdict


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WidthRun:
    """The plain answer to one prompt, read in passes of ``difference.width`` tokens."""

    prompt: str
    difference: WidthDifference


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExactnessReport:
    """Everything that was found.

    Attributes:
        greedy: by prompt, then by horizon.
        widths: likewise.
        sampling_prompt: of the statistical check.
        sampling: its result.
    """

    greedy: tuple[GreedyRun, ...]
    widths: tuple[WidthRun, ...]
    sampling_prompt: str
    sampling: SamplingCheck

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return (
            all(run.verdict.passed for run in self.greedy)
            and all(run.difference.passed for run in self.widths)
            and self.sampling.passed
        )

    def as_dict(self) -> dict[str, Any]:
        """For machines; every check says whether it passed."""
        return {
            "passed": self.passed,
            "greedy": [
                {
                    "prompt": run.prompt,
                    "horizon": run.horizon,
                    "drafted": run.drafted,
                    "accepted": run.accepted,
                    "passed": run.verdict.passed,
                    **asdict(run.verdict),
                }
                for run in self.greedy
            ],
            "widths": [
                {"prompt": run.prompt, "passed": run.difference.passed, **asdict(run.difference)} for run in self.widths
            ],
            "sampling": {
                "prompt": self.sampling_prompt, "passed": self.sampling.passed, **asdict(self.sampling)
            },
        }  # fmt: skip


def check_exactness(
    target: Target,
    drafter: Drafter,
    prompts: Mapping[str, Sequence[int]],
    config: ExactnessConfig,
    *,
    rule: Rule | None = None,
    on_stage: Callable[[str, int], None],
    on_step: Callable[[], None],
) -> ExactnessReport:
    """Check a pair on some prompts.

    Greedy answers with drafts are compared with plain ones; the plain answers' laws from passes of ``horizon + 1``
    tokens with those from passes of one; and the first tokens of many sampled answers with their exact law, at the
    same horizons and after the prompt whose first token is least certain.

    Args:
        target: the model.
        drafter: its drafter.
        prompts: token ids by name, at least one.
        config: how much.
        rule: acceptance rule; ``None`` for the engine's own.
        on_stage: told what begins, and in how many steps.
        on_step: called after each step.

    Raises:
        ForerunError: a lossy rule, a horizon that the drafter cannot reach, answers too short for the horizons, or a
            prompt that leaves the statistical check nothing to see.
    """
    if rule is not None and not rule.exact:
        raise ForerunError(
            f"rule {rule.name} is lossy: it changes the target's law on purpose, so nothing can be checked"
        )
    horizons = _horizons(config, drafter)
    longest = max(horizons)
    too_short = (
        f"a pass of {longest + 1} tokens needs answers of {longest + 2}; "
        "allow longer answers, give smaller horizons or other prompts"
    )
    if config.max_new_tokens < longest + 2:
        raise ForerunError(too_short)
    plain: dict[str, list[int]] = {}
    greedy: list[GreedyRun] = []
    on_stage("Greedy answers", len(prompts) * (1 + len(horizons)))
    for name, prompt_ids in prompts.items():
        answer = generate(
            target, prompt_ids, sampling=SamplingParams(temperature=0.0), max_new_tokens=config.max_new_tokens
        )
        plain[name] = answer.token_ids
        on_step()
        for horizon in horizons:
            drafted = generate(
                target, prompt_ids, drafter=drafter, horizon=horizon, rule=rule,
                sampling=SamplingParams(temperature=0.0), max_new_tokens=config.max_new_tokens,
            )  # fmt: skip
            verdict = greedy_verdict(target, prompt_ids, plain[name], drafted.token_ids)
            totals = drafted.totals
            run = GreedyRun(
                prompt=name, horizon=horizon, drafted=totals.drafted, accepted=totals.accepted, verdict=verdict
            )
            greedy.append(run)
            on_step()
    texts = {name: answer for name, answer in plain.items() if len(answer) > longest + 1}
    if not texts:
        raise ForerunError(too_short)
    on_stage("Laws of wide passes", len(texts))
    widths: list[WidthRun] = []
    for name, token_ids in texts.items():
        found = width_differences(target, prompts[name], token_ids, [horizon + 1 for horizon in horizons])
        widths += [WidthRun(prompt=name, difference=difference) for difference in found]
        on_step()
    on_stage("Sampled answers", config.num_samples)
    least_certain = max(prompts, key=lambda name: _first_entropy(target, prompts[name]))
    sampling = check_sampling(
        target, drafter, prompts[least_certain], horizons=horizons, num_answers=config.num_samples,
        num_tokens=config.sampled_tokens, seed=config.seed, rule=rule, on_answer=on_step,
    )  # fmt: skip
    return ExactnessReport(greedy=tuple(greedy), widths=tuple(widths), sampling_prompt=least_certain, sampling=sampling)


def _horizons(config: ExactnessConfig, drafter: Drafter) -> tuple[int, ...]:
    if config.horizons is None:
        return tuple(horizon for horizon in DEFAULT_HORIZONS if horizon <= drafter.max_horizon)
    for horizon in config.horizons:
        if not 1 <= horizon <= drafter.max_horizon:
            raise ForerunError(f"horizon is {horizon}; {drafter.name} can draft 1 to {drafter.max_horizon} tokens")
    return config.horizons


def _first_entropy(target: Target, prompt_ids: Sequence[int]) -> float:
    logits = target.forward(torch.tensor(prompt_ids), target.new_cache(), num_logits=1).logits
    return float(law_from_logits(logits, SamplingParams()).entropy())
