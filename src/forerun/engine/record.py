"""What is written down about every round; every metric is derived from these and from nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import final

from forerun.distributions import TokenLogprob
from forerun.horizons import Choice


class Finish(StrEnum):
    """Why an answer ended."""

    STOP_ID = "stop id"
    STOP_STRING = "stop string"
    LENGTH = "length"
    CANCELLED = "cancelled"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSeconds:
    """Wall-clock seconds of one round by phase.

    ``controller`` is what the horizon policy costs: both of its verbs, its coin, and what it asks to see of the target.
    """

    controller: float
    draft: float
    verify: float
    commit: float

    @property
    def total(self) -> float:
        """Whole round."""
        return self.controller + self.draft + self.verify + self.commit


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """One draft-verify-commit round; a round of horizon 0 is plain decoding.

    Attributes:
        index: 0 for the first round after the prompt.
        limit: largest horizon that drafter, cap and context allowed.
        choice: of the horizon policy.
        drafted: tokens that the drafter proposed, all branches of a tree counted.
        depth: most of them that could have been accepted: all of a chain, the longest path of a tree.
        riders: tokens that the target read for the next round's draft; none stays in its cache.
        beyond_drafter: nothing could be drafted, for the drafter cannot handle the position of the first draft.
        cut_short: the drafter's logits stopped being a law (NaN, say) before the horizon was reached.
        accepted: of them accepted by verification, before any stop cuts the round.
        token_ids: emitted: accepted drafts and the correction or bonus, up to a stop.
        accepted_emitted: how many of the emitted tokens are accepted drafts.
        text: that became readable in this round (``""`` for targets without a tokenizer).
        logprobs: of each emitted token under the target's unprocessed law; ``None`` where they were not asked for.
        finish: set in the last round.
        seconds: by phase; in a batch its share of the target's pass, so that sums over requests are time that passed.
    """

    index: int
    limit: int
    choice: Choice
    drafted: int
    depth: int
    riders: int
    beyond_drafter: bool
    cut_short: bool
    accepted: int
    token_ids: tuple[int, ...]
    accepted_emitted: int
    text: str
    logprobs: tuple[TokenLogprob, ...] | None
    finish: Finish | None
    seconds: RoundSeconds


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """The pass over the prompt, which also yields the first token; counted apart from the rounds."""

    prompt_tokens: int
    token_id: int
    text: str
    logprobs: tuple[TokenLogprob, ...] | None
    finish: Finish | None
    seconds: float
