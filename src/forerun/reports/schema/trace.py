"""One answer, round by round: which tokens the drafter proposed and which are the target's own."""

from typing import final

from pydantic import BaseModel, NonNegativeFloat, NonNegativeInt, model_validator

from forerun.reports.schema.record import RECORD, Name, Task


@final
class TraceRound(BaseModel):
    """One round of one answer.

    Attributes:
        tokens: text of each emitted token. A token that ends within a character has the text "" and the token that
            completes the character carries it whole, so that the pieces joined are the answer.
        horizon: tokens drafted.
        accepted: tokens accepted: the first `accepted` of `tokens` are the draft's, the next one is the target's own.
    """

    model_config = RECORD

    tokens: tuple[str, ...]
    horizon: NonNegativeInt
    accepted: NonNegativeInt

    @property
    def draft_tokens(self) -> tuple[str, ...]:
        """Emitted tokens that the drafter proposed."""
        return self.tokens[: self.accepted]

    @property
    def target_tokens(self) -> tuple[str, ...]:
        """Emitted tokens that are the target's own: a correction or a bonus; none when a stop came first."""
        return self.tokens[self.accepted :]

    @model_validator(mode="after")
    def _possible(self) -> "TraceRound":
        if self.accepted > self.horizon:
            raise ValueError(f"{self.accepted} tokens accepted in a round that drafted {self.horizon}")
        if len(self.tokens) > self.accepted + 1:
            raise ValueError(f"{len(self.tokens)} tokens emitted in a round that accepted {self.accepted}")
        return self


@final
class Trace(BaseModel):
    """One answer, round by round.

    Attributes:
        arm: the way of decoding, as in `ArmResult`.
        task: where the prompt comes from.
        temperature: of the target's law.
        prompt: what was asked.
        opening: text of the token that the prefill emitted.
        rounds: the rounds in order.
    """

    model_config = RECORD

    arm: Name
    task: Task
    temperature: NonNegativeFloat
    prompt: str
    opening: str
    rounds: tuple[TraceRound, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens of the answer, the prefill's included."""
        return 1 + sum(len(each.tokens) for each in self.rounds)
