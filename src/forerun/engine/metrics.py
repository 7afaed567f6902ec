"""Numbers derived from round records, each named in full.

tau is tokens emitted per target verification pass: correction and bonus tokens included, the prefill token and tokens
after a stop excluded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from forerun.engine.record import RoundRecord


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTotals:
    """Sums over rounds; add the totals of several answers, never average their ratios.

    Attributes:
        rounds: target verification passes.
        rounds_without_drafts: of them without a drafted token: horizon 0, or a look-up that found nothing.
        rounds_beyond_drafter: of them without a draft because the drafter cannot handle so late a position.
        rounds_cut_short: of them whose draft ended early because the drafter's logits were no law.
        drafted: tokens proposed.
        accepted: of them accepted by verification, tokens after a stop included.
        emitted: tokens that reached the answer.
        accepted_emitted: of them accepted drafts.
        horizons: sum of chosen horizons.
        drafted_by_position: rounds that drafted position 1, 2, ...
        accepted_by_position: rounds that accepted it.
        controller_seconds, draft_seconds, verify_seconds, commit_seconds: by phase.
    """

    rounds: int = 0
    rounds_without_drafts: int = 0
    rounds_beyond_drafter: int = 0
    rounds_cut_short: int = 0
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    accepted_emitted: int = 0
    horizons: int = 0
    drafted_by_position: tuple[int, ...] = ()
    accepted_by_position: tuple[int, ...] = ()
    controller_seconds: float = 0.0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    commit_seconds: float = 0.0

    @classmethod
    def of(cls, records: Iterable[RoundRecord]) -> RoundTotals:
        """Totals of some rounds."""
        total = cls()
        for record in records:
            total += cls(
                rounds=1,
                rounds_without_drafts=int(record.drafted == 0),
                rounds_beyond_drafter=int(record.beyond_drafter),
                rounds_cut_short=int(record.cut_short),
                drafted=record.drafted,
                accepted=record.accepted,
                emitted=len(record.token_ids),
                accepted_emitted=record.accepted_emitted,
                horizons=record.choice.horizon,
                drafted_by_position=(1,) * record.depth,
                accepted_by_position=(1,) * record.accepted,
                controller_seconds=record.seconds.controller,
                draft_seconds=record.seconds.draft,
                verify_seconds=record.seconds.verify,
                commit_seconds=record.seconds.commit,
            )
        return total

    def __add__(self, other: RoundTotals) -> RoundTotals:
        """Totals of both."""
        return RoundTotals(
            rounds=self.rounds + other.rounds,
            rounds_without_drafts=self.rounds_without_drafts + other.rounds_without_drafts,
            rounds_beyond_drafter=self.rounds_beyond_drafter + other.rounds_beyond_drafter,
            rounds_cut_short=self.rounds_cut_short + other.rounds_cut_short,
            drafted=self.drafted + other.drafted,
            accepted=self.accepted + other.accepted,
            emitted=self.emitted + other.emitted,
            accepted_emitted=self.accepted_emitted + other.accepted_emitted,
            horizons=self.horizons + other.horizons,
            drafted_by_position=_padded_sum(self.drafted_by_position, other.drafted_by_position),
            accepted_by_position=_padded_sum(self.accepted_by_position, other.accepted_by_position),
            controller_seconds=self.controller_seconds + other.controller_seconds,
            draft_seconds=self.draft_seconds + other.draft_seconds,
            verify_seconds=self.verify_seconds + other.verify_seconds,
            commit_seconds=self.commit_seconds + other.commit_seconds,
        )

    @property
    def seconds(self) -> float:
        """Of all rounds; prefill excluded."""
        return self.controller_seconds + self.draft_seconds + self.verify_seconds + self.commit_seconds

    @property
    def tau(self) -> float | None:
        """Tokens emitted per verification pass; ``None`` without rounds."""
        return self.emitted / self.rounds if self.rounds else None

    @property
    def tokens_per_second(self) -> float | None:
        """Decoding speed, prefill excluded; ``None`` without rounds."""
        return self.emitted / self.seconds if self.rounds else None

    @property
    def mean_horizon(self) -> float | None:
        """Chosen horizon per round; ``None`` without rounds."""
        return self.horizons / self.rounds if self.rounds else None

    @property
    def as_sglang(self) -> float | None:
        """SGLang's accept length: completion tokens per verification, the same as ``tau``."""
        return self.tau

    @property
    def as_vllm(self) -> float | None:
        """VLLM's mean acceptance length: 1 + accepted / drafting rounds, tokens after a stop included."""
        drafting = self.rounds - self.rounds_without_drafts
        return 1.0 + self.accepted / drafting if drafting else None


def _padded_sum(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    return tuple(a + b for a, b in zip(longer, shorter, strict=False)) + longer[len(shorter) :]
