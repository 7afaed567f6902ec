"""Does a drafter compute the same in decoding as in training, and is it accepted as often as training would predict?

Two looks at text that the target writes itself. First, at every anchor, the logits of a block opened as decoding opens
it against those of the teacher-forced forward that training uses. Second, the accepted drafts of the rounds in which
the text was written against the acceptance length that the laws of the teacher-forced forward predict at the same
anchors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from forerun.distributions import SamplingParams
from forerun.drafters import BlockInputs, NetworkDrafter, ProposalPolicy
from forerun.engine import Generation, generate
from forerun.errors import ForerunError
from forerun.models import TransformersTarget
from forerun.verification import TokenLevel

_BLOCKS_AT_ONCE = 16


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ParityConfig:
    """How much is checked, and what counts as the same.

    Attributes:
        num_tokens: of answers, at least; prompts are answered in turn until they are reached.
        max_new_tokens: of one answer.
        seed: of the answers.
        tolerance: largest total variation allowed between two laws that should be one; ``None`` for 0.001, or 0.05 for
            a target in half precision.
        max_standard_errors: by which accepted drafts may differ from what is predicted; 4 is passed by a right drafter
            in all but 1 of 16,000 checks.
    """

    num_tokens: int = 200
    max_new_tokens: int = 64
    seed: int = 0
    tolerance: float | None = None
    max_standard_errors: float = 4.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ParityReport:
    """What was found.

    Attributes:
        tokens: of answers.
        laws: compared.
        largest_logit_difference: over all laws, after both rows are shifted to a maximum of 0.
        largest_total_variation: over all laws.
        tolerance: for it.
        rounds: with drafts.
        measured_tau: 1 + accepted drafts of a round, mean.
        predicted_tau: 1 + expected acceptance length at the same anchors, mean.
        standard_error: of the difference of the two.
        max_standard_errors: allowed.
    """

    tokens: int
    laws: int
    largest_logit_difference: float
    largest_total_variation: float
    tolerance: float
    rounds: int
    measured_tau: float
    predicted_tau: float
    standard_error: float
    max_standard_errors: float

    @property
    def same_laws(self) -> bool:
        """Training and decoding agree."""
        return self.largest_total_variation <= self.tolerance

    @property
    def same_tau(self) -> bool:
        """Drafts are accepted as often as predicted."""
        return abs(self.measured_tau - self.predicted_tau) <= self.max_standard_errors * self.standard_error + 1e-9

    @property
    def passed(self) -> bool:
        """Both."""
        return self.same_laws and self.same_tau

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        return {"passed": self.passed, "same_laws": self.same_laws, "same_tau": self.same_tau, **asdict(self)}


def check_parity(
    target: TransformersTarget,
    drafter: NetworkDrafter,
    prompts: Mapping[str, Sequence[int]],
    config: ParityConfig,
    *,
    on_tokens: Callable[[int], None],
) -> ParityReport:
    """Check a pair.

    Args:
        target: the model.
        drafter: a trained network.
        prompts: token ids by name, at least one.
        config: how much.
        on_tokens: told how many more tokens have been checked.

    Raises:
        ForerunError: the answers to all prompts together are too short.
    """
    half = target.dtype in (torch.bfloat16, torch.float16)
    tolerance = config.tolerance if config.tolerance is not None else (0.05 if half else 1e-3)
    tokens, laws, rounds = 0, 0, []
    largest_logit, largest_variation = 0.0, 0.0
    for number, prompt_ids in enumerate(prompts.values()):
        if tokens >= config.num_tokens:
            break
        answer = generate(
            target,
            list(prompt_ids),
            drafter=drafter,
            horizon=drafter.max_horizon,
            rule=TokenLevel(),
            sampling=SamplingParams(),
            max_new_tokens=config.max_new_tokens,
            seed=config.seed,
            request=number,
        )
        text = _Text.of(target, drafter, answer)
        for taught, decoded in text.pairs():
            variation, logit = _differences(taught, decoded)
            largest_variation, largest_logit = max(largest_variation, variation), max(largest_logit, logit)
            laws += len(taught)
        rounds += text.rounds(answer)
        tokens += len(answer.token_ids)
        on_tokens(len(answer.token_ids))
    if tokens < config.num_tokens:
        raise ForerunError(
            f"the answers to {len(prompts)} prompts have {tokens} tokens, {config.num_tokens} are to be checked; "
            "give more prompts, or allow longer answers"
        )
    gaps = [accepted - expected for accepted, expected in rounds]
    return ParityReport(
        tokens=tokens,
        laws=laws,
        largest_logit_difference=largest_logit,
        largest_total_variation=largest_variation,
        tolerance=tolerance,
        rounds=len(rounds),
        measured_tau=1 + sum(accepted for accepted, _ in rounds) / len(rounds),
        predicted_tau=1 + sum(expected for _, expected in rounds) / len(rounds),
        # given the rounds before, each gap has mean zero, so the squares alone make the variance of their sum
        standard_error=sqrt(sum(gap * gap for gap in gaps)) / len(rounds),
        max_standard_errors=config.max_standard_errors,
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Text:
    """A prompt with its answer, and what target and drafter say of it."""

    drafter: NetworkDrafter
    token_ids: Int[Tensor, " length"]
    features: Float[Tensor, "length layers hidden"]
    target_laws: Float[Tensor, "length vocab"]
    first_anchor: int
    draft_logits: Float[Tensor, "anchors slots draft_vocab"]

    @classmethod
    @torch.inference_mode()
    def of(cls, target: TransformersTarget, drafter: NetworkDrafter, answer: Generation) -> _Text:
        """Read the whole text once with the target, and with the drafter as in training."""
        token_ids = torch.tensor([*answer.request.prompt_ids, *answer.token_ids], device=target.device)
        step = target.forward(token_ids, target.new_cache(), captured=drafter.captured_layers)
        first_anchor = len(answer.request.prompt_ids)
        return cls(
            drafter=drafter,
            token_ids=token_ids,
            features=step.features,
            target_laws=step.logits.float().softmax(-1),
            first_anchor=first_anchor,
            draft_logits=_taught(drafter, token_ids, step.features, first_anchor),
        )

    @torch.inference_mode()
    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """For each anchor its taught and its decoded logits, as many slots as the text has tokens after it."""
        drafter, found = self.drafter, []
        context = drafter.network.new_context(drafter.borrowed, drafter.heads)
        for anchor in range(self.first_anchor, len(self.token_ids) - 1):
            start = context.length
            context.extend(self.token_ids[start:anchor], self.features[start:anchor])
            following = self.token_ids[anchor + 1 :][: drafter.max_horizon]
            block = context.open(int(self.token_ids[anchor]), len(following))
            decoded = torch.stack([block.logits(following[:slot]) for slot in range(len(following))])
            found.append((self.draft_logits[anchor - self.first_anchor, : len(following)], decoded))
        return found

    def rounds(self, answer: Generation) -> list[tuple[int, float]]:
        """Accepted drafts of each round, as far as the text goes, and what the laws of training predict.

        With v the text, which is the target's own, the expected number is the mean of the sum over k of
        (prod over i < k of min(1, draft(v_i) / target(v_i))) * sum min(target_k, draft_k).
        """
        found, anchor = [], self.first_anchor
        for record in answer.records:
            depth = min(record.drafted, len(self.token_ids) - 1 - anchor)
            if record.drafted:
                found.append((min(record.accepted, depth), self._expected(anchor, depth)))
            anchor += len(record.token_ids)
        return found

    def _expected(self, anchor: int, depth: int) -> float:
        kept = self.drafter.vocabulary.target_ids.to(self.token_ids.device)
        drafts = torch.zeros_like(self.target_laws[:depth])
        logits = self.draft_logits[anchor - self.first_anchor, :depth].float()
        if self.drafter.policy is ProposalPolicy.ARGMAX:
            drafts[torch.arange(depth), kept[logits.argmax(-1)]] = 1.0
        else:
            drafts[:, kept] = logits.softmax(-1)
        targets = self.target_laws[anchor : anchor + depth]
        labels = self.token_ids[anchor + 1 : anchor + 1 + depth, None]
        ratios = (drafts.gather(1, labels) / targets.gather(1, labels)).clamp(max=1.0)[:, 0]
        reached = torch.cat([ratios.new_ones(1), ratios[:-1].cumprod(0)])
        return float((reached * torch.minimum(targets, drafts).sum(-1)).sum())


def _taught(
    drafter: NetworkDrafter, token_ids: Int[Tensor, " length"], features: Tensor, first_anchor: int
) -> Float[Tensor, "anchors slots draft_vocab"]:
    """The forward of training at every anchor; slots past the text's end mean nothing."""
    slots, parts = drafter.max_horizon, []
    padded = torch.cat([token_ids, token_ids.new_zeros(slots)])
    anchors = torch.arange(first_anchor, max(first_anchor + 1, len(token_ids) - 1), device=token_ids.device)
    for chunk in anchors.split(_BLOCKS_AT_ONCE):
        inputs = BlockInputs(
            token_ids=token_ids[None],
            features=features[None],
            anchors=chunk[None],
            previous=padded[chunk[:, None] + torch.arange(slots, device=token_ids.device)][None],
        )
        parts.append(drafter.network.teach(inputs, drafter.borrowed).realised_logits(drafter.heads)[0])
    return torch.cat(parts)


def _differences(taught: Tensor, decoded: Tensor) -> tuple[float, float]:
    """Largest total variation of two rows' laws, and largest difference of their logits."""
    variation = (taught.float().softmax(-1) - decoded.float().softmax(-1)).abs().sum(-1).max() / 2
    peaked = [logits.float() - logits.float().amax(-1, keepdim=True) for logits in (taught, decoded)]
    gaps = (peaked[0] - peaked[1]).nan_to_num(nan=0.0)  # two logits of minus infinity are the same
    return float(variation), float(gaps.abs().max())
