"""The counters of one way of decoding, and the metrics that follow from them."""

from typing import Annotated, Literal, final

from pydantic import BaseModel, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, model_validator

from forerun.reports.schema.record import RECORD, Name, Task

Verdict = Literal["faster", "slower", "no clear difference"]


@final
class PairedRatio(BaseModel):
    """Tokens per second of an arm divided by those of plain decoding, over the same prompts, run in turn.

    Attributes:
        estimate: the ratio; above 1 the arm is faster.
        low: lower end of the 95 % interval (paired bootstrap over prompts).
        high: upper end.
        num_pairs: prompts measured under both; an interval needs at least two.
    """

    model_config = RECORD

    estimate: PositiveFloat
    low: PositiveFloat
    high: PositiveFloat
    num_pairs: Annotated[int, Field(ge=2)]

    @property
    def verdict(self) -> Verdict:
        """What the interval allows to be said: an interval that contains 1 allows nothing."""
        if self.low > 1.0:
            return "faster"
        if self.high < 1.0:
            return "slower"
        return "no clear difference"

    @model_validator(mode="after")
    def _ordered(self) -> "PairedRatio":
        if self.low > self.high:
            raise ValueError(f"the interval's lower end {self.low} lies above its upper end {self.high}")
        return self


@final
class PhaseSeconds(BaseModel):
    """Seconds of all rounds together, by what they were spent on.

    Attributes:
        controller: choosing the horizon and learning from the outcome.
        draft: proposing tokens.
        verify: the target's forward pass.
        commit: accepting, emitting, rolling caches back.
    """

    model_config = RECORD

    controller: NonNegativeFloat
    draft: NonNegativeFloat
    verify: NonNegativeFloat
    commit: NonNegativeFloat

    @property
    def total(self) -> float:
        """Seconds of the rounds, prefill excluded."""
        return self.controller + self.draft + self.verify + self.commit

    def by_phase(self) -> tuple[tuple[str, float], ...]:
        """Phases in the order of a round, each with its seconds."""
        return (
            ("controller", self.controller),
            ("draft", self.draft),
            ("verify", self.verify),
            ("commit", self.commit),
        )


@final
class ArmResult(BaseModel):
    """One way of decoding on one task at one temperature: counters summed over its rounds.

    Attributes:
        arm: the way of decoding, for example "plain", "fixed k=3" or "AMTP".
        task: where the prompts come from; "all" is every prompt of the run.
        temperature: of the target's law; 0 is greedy.
        exact: whether the output law is the target's; a lossy mode says False.
        num_prompts: answers generated.
        rounds: target verification passes.
        rounds_without_drafts: of them without a drafted token; None in results from before it was counted.
        rounds_beyond_drafter: of these because the drafter cannot handle so late a position; None likewise.
        emitted_tokens: tokens those passes emitted, tokens after a stop excluded.
        drafted_tokens: tokens proposed.
        accepted_tokens: proposed tokens accepted.
        drafted_by_position: rounds that proposed a token at position 1, 2, ...
        accepted_by_position: of these, rounds that accepted it (and so every one before it).
        seconds: what the rounds took.
        ratio_to_plain: speed against plain decoding; None for plain itself, and where fewer than two prompts were
            paired.
    """

    model_config = RECORD

    arm: Name
    task: Task
    temperature: NonNegativeFloat
    exact: bool
    num_prompts: NonNegativeInt
    rounds: NonNegativeInt
    rounds_without_drafts: NonNegativeInt | None = None
    rounds_beyond_drafter: NonNegativeInt | None = None
    emitted_tokens: NonNegativeInt
    drafted_tokens: NonNegativeInt
    accepted_tokens: NonNegativeInt
    drafted_by_position: tuple[NonNegativeInt, ...]
    accepted_by_position: tuple[NonNegativeInt, ...]
    seconds: PhaseSeconds
    ratio_to_plain: PairedRatio | None

    @property
    def tau(self) -> float | None:
        """Tokens emitted per verification pass; None without a pass."""
        return self.emitted_tokens / self.rounds if self.rounds else None

    @property
    def mean_horizon(self) -> float | None:
        """Tokens drafted per verification pass; None without a pass."""
        return self.drafted_tokens / self.rounds if self.rounds else None

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens emitted per second of rounds, prefill excluded; None when no time was measured."""
        return self.emitted_tokens / self.seconds.total if self.seconds.total else None

    @property
    def controller_microseconds_per_round(self) -> float | None:
        """What choosing the horizon costs; None without a round."""
        return 1e6 * self.seconds.controller / self.rounds if self.rounds else None

    @property
    def verdict(self) -> Verdict | None:
        """Faster or slower than plain decoding; None where there is no ratio."""
        return self.ratio_to_plain.verdict if self.ratio_to_plain else None

    @property
    def survival_by_position(self) -> tuple[float | None, ...]:
        """Share of the tokens proposed at position 1, 2, ... that were accepted; None where none was proposed."""
        counts = zip(self.accepted_by_position, self.drafted_by_position, strict=True)
        return tuple(accepted / drafted if drafted else None for accepted, drafted in counts)

    @model_validator(mode="after")
    def _counters_agree(self) -> "ArmResult":
        if self.accepted_tokens > self.drafted_tokens:
            raise ValueError(f"{self.accepted_tokens} tokens accepted, but only {self.drafted_tokens} drafted")
        if not (self.rounds_beyond_drafter or 0) <= (self.rounds_without_drafts or 0) <= self.rounds:
            raise ValueError(
                f"{self.rounds_beyond_drafter} rounds beyond the drafter, {self.rounds_without_drafts} without drafts, "
                f"{self.rounds} rounds: each must hold the one before"
            )
        if len(self.accepted_by_position) != len(self.drafted_by_position):
            raise ValueError("accepted_by_position and drafted_by_position must have the same length")
        for position, accepted in enumerate(self.accepted_by_position, start=1):
            if accepted > self.drafted_by_position[position - 1]:
                raise ValueError(f"more tokens accepted than drafted at position {position}")
        return self
