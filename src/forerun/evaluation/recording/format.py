"""The lines of a recording: a header that says where it comes from, then one line for each answer.

It knows fields and their limits; neither how they are measured nor what is done with them.
"""

from __future__ import annotations

from typing import Annotated, Literal, final

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, model_validator

from forerun.horizons import DraftStatistics, DrawnToken, RoundContext, TokenClass

STRICT = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

Probability = Annotated[float, Field(ge=0.0, le=1.0 + 1e-9)]
Name = Annotated[str, Field(min_length=1)]


@final
class UncachedPass(BaseModel):
    """Median seconds of a target's pass over a whole sequence, nothing cached; processor time on a processor."""

    model_config = STRICT

    length: Annotated[int, Field(ge=1)]
    seconds: PositiveFloat


@final
class RecordingHeader(BaseModel):
    """Where a recording comes from and what it holds.

    Attributes:
        format: name of this layout.
        forerun_version: that recorded.
        commit: of its checkout.
        created: when recording began.
        command: what was typed.
        machine: where.
        target: name and hash.
        drafter: name and hash.
        rule: agreement, the one rule whose text depends on no horizon.
        seed: of every draw; answer i has the streams of request ``i``.
        max_new_tokens: cap of every answer.
        ignore_stop_ids: stop ids were passed over.
        max_horizon: tokens drafted at every position, as far as its limit allowed.
        temperatures: of the answers, 0 is greedy.
        prompts: ids of the prompts, in order; answers are numbered prompt by prompt, all temperatures of each.
        cached_seconds: median seconds of a whole round with horizon 0, 1, ..., ``max_horizon``, keys and values cached;
            processor time on a processor.
        draft_seconds: of them, for drafting.
        uncached: what a pass costs without a cache.
    """

    model_config = STRICT

    format: Literal["forerun-recording-1"] = "forerun-recording-1"
    forerun_version: Name
    commit: str | None
    created: Name
    command: Name
    machine: dict[str, str | int]
    target: dict[str, str]
    drafter: dict[str, str]
    rule: Literal["agreement"]
    seed: NonNegativeInt
    max_new_tokens: Annotated[int, Field(ge=2)]
    ignore_stop_ids: bool
    max_horizon: Annotated[int, Field(ge=1)]
    temperatures: tuple[NonNegativeFloat, ...]
    prompts: tuple[Name, ...]
    cached_seconds: tuple[PositiveFloat, ...]
    draft_seconds: tuple[NonNegativeFloat, ...]
    uncached: tuple[UncachedPass, ...]

    @property
    def num_answers(self) -> int:
        """Answers of the finished recording."""
        return len(self.prompts) * len(self.temperatures)

    @model_validator(mode="after")
    def _complete(self) -> RecordingHeader:
        if not len(self.cached_seconds) == len(self.draft_seconds) == self.max_horizon + 1:
            raise ValueError(f"cached_seconds and draft_seconds need one entry for each horizon 0..{self.max_horizon}")
        if len(self.uncached) < 2:
            raise ValueError("uncached needs passes of two lengths or more")
        return self


@final
class RecordedContext(BaseModel):
    """The fields of a ``RoundContext``."""

    model_config = STRICT

    limit: NonNegativeInt
    context_length: NonNegativeInt
    generated: NonNegativeInt
    temperature: NonNegativeFloat
    target_entropy: float | None
    target_top_prob: float | None
    target_margin: float | None
    last_token_repeats: bool
    token_class: TokenClass | None
    suffix_match: NonNegativeInt | None
    hidden: tuple[float, ...] | None
    draft_margins: tuple[float, ...] | None
    batch_size: Annotated[int, Field(ge=1)]

    def round_context(self) -> RoundContext:
        """As the policy gets it."""
        return RoundContext(
            limit=self.limit,
            context_length=self.context_length,
            generated=self.generated,
            temperature=self.temperature,
            target_entropy=self.target_entropy,
            target_top_prob=self.target_top_prob,
            target_margin=self.target_margin,
            last_token_repeats=self.last_token_repeats,
            token_class=self.token_class,
            suffix_match=self.suffix_match,
            hidden=self.hidden,
            draft_margins=self.draft_margins,
            batch_size=self.batch_size,
        )


@final
class RecordedDraft(BaseModel):
    """One drafted token: what its law looked like before it was drawn, and its probability there."""

    model_config = STRICT

    entropy: NonNegativeFloat
    top_prob: Probability
    margin: Probability
    confidence: Probability | None
    prob: Probability

    def drawn_token(self) -> DrawnToken:
        """As a stop rule gets it."""
        law = DraftStatistics(
            entropy=self.entropy, top_prob=self.top_prob, margin=self.margin, confidence=self.confidence
        )
        return DrawnToken(law, self.prob)


@final
class RecordedPosition(BaseModel):
    """A round with the whole window that begins at one position of the answer.

    Attributes:
        context: what a policy would be told there.
        accepted: drafts that stand, of the whole window.
        accept_probabilities: as in ``RoundFeedback``.
        overlaps: likewise.
        censored: likewise.
        drafts: what a stop rule would see of them.
        draft_seconds: measured.
        verify_seconds: measured, the whole window wide.
    """

    model_config = STRICT

    context: RecordedContext
    accepted: NonNegativeInt
    accept_probabilities: tuple[NonNegativeFloat, ...]
    overlaps: tuple[Probability, ...]
    censored: NonNegativeInt | None
    drafts: tuple[RecordedDraft, ...]
    draft_seconds: NonNegativeFloat
    verify_seconds: NonNegativeFloat

    @model_validator(mode="after")
    def _possible(self) -> RecordedPosition:
        drafted = len(self.accept_probabilities)
        if not len(self.overlaps) == len(self.drafts) == drafted:
            raise ValueError(f"{drafted} accept probabilities need as many overlaps and drafts")
        if self.accepted > drafted or drafted > self.context.limit:
            raise ValueError(f"{self.accepted} accepted of {drafted} drafted, where the limit is {self.context.limit}")
        return self


@final
class RecordedAnswer(BaseModel):
    """One answer and what a round would have met at each of its positions.

    Attributes:
        number: of the answer; the request whose streams it drew from.
        prompt: id.
        task: math, code, chat, or what the prompt file says.
        temperature: 0 is greedy.
        prompt_tokens: committed before the answer.
        token_ids: the answer; the first one came with the prompt.
        finish: why it ended.
        positions: entry i is the round that begins after i + 1 tokens of the answer; none after the last one.
    """

    model_config = STRICT

    number: NonNegativeInt
    prompt: Name
    task: str
    temperature: NonNegativeFloat
    prompt_tokens: Annotated[int, Field(ge=1)]
    token_ids: tuple[NonNegativeInt, ...]
    finish: Name
    positions: tuple[RecordedPosition, ...]

    @model_validator(mode="after")
    def _one_position_each(self) -> RecordedAnswer:
        if len(self.positions) != len(self.token_ids) - 1:
            raise ValueError(f"{len(self.token_ids)} tokens need {len(self.token_ids) - 1} positions")
        for index, position in enumerate(self.positions, start=1):
            if position.context.generated != index:
                raise ValueError(f"position {index} says that {position.context.generated} tokens were generated")
        return self
