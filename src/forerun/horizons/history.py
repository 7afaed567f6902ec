"""What the past rounds of a policy say about how well drafting goes right now.

It knows the evidence of verified rounds only; nothing of the round being decided.
"""

from __future__ import annotations

from operator import mul
from typing import final

from forerun.horizons.context import RoundFeedback
from forerun.horizons.evidence import Evidence
from forerun.horizons.plain import check_keys, read_bool, read_float, read_int

FAST_RATE = 0.3
SLOW_RATE = 0.03


@final
class AcceptanceHistory:
    """Running accept rates at two time scales, and how the last informative round ended.

    A round's accept rate is 1 - sum(w y) / sum(w) over its evidence: accepted / reached for accept bits. The running
    means start as plain means, rate max(alpha, 1 / n), so that the first rounds are not overweighted.

    Rounds without evidence (horizon 0) change nothing. A round that a stop cut before any rejection counts in the rates
    but never as "all accepted": it does not promote.

    Attributes:
        fast: accept rate with alpha 0.3; None before the first informative round.
        slow: the same with alpha 0.03.
        rounds: number of informative rounds.
        last_reject: 1-based position of the last round's rejection; drafted + 1 where everything was accepted; None at
            first.
        corrected: the last round ended in a correction (and not in a bonus token); None at first.
        quiet_rounds: informative rounds since the last one with a rejection.
        mismatch: mean of 1 - overlap over the last round's drafts that count; None at first.
        mismatch_swing: running mean (alpha 0.3) of how much that moved from round to round; None at first.
    """

    def __init__(self) -> None:
        self.fast: float | None = None
        self.slow: float | None = None
        self.rounds = 0
        self.last_reject: int | None = None
        self.corrected: bool | None = None
        self.quiet_rounds = 0
        self.mismatch: float | None = None
        self.mismatch_swing: float | None = None

    def observe(self, feedback: RoundFeedback, evidence: Evidence) -> None:
        """Take in a verified round and its evidence."""
        if not evidence.weights:
            return
        self.rounds += 1
        rate = 1.0 - sum(map(mul, evidence.weights, evidence.labels)) / sum(evidence.weights)
        young = 1.0 / self.rounds
        fast, slow = self.fast or 0.0, self.slow or 0.0
        self.fast = fast + (young if young > FAST_RATE else FAST_RATE) * (rate - fast)
        self.slow = slow + (young if young > SLOW_RATE else SLOW_RATE) * (rate - slow)
        drafted, counted = len(feedback.overlaps), feedback.counted
        before, self.mismatch = self.mismatch, 1.0 - sum(feedback.overlaps[:counted]) / counted
        if before is not None:
            move, swing = abs(self.mismatch - before), self.mismatch_swing
            self.mismatch_swing = move if swing is None else swing + FAST_RATE * (move - swing)
        if feedback.accepted < counted:
            self.last_reject = feedback.accepted + 1
            self.corrected = True
            self.quiet_rounds = 0
            return
        self.quiet_rounds += 1
        if counted == drafted:
            self.last_reject = drafted + 1
            self.corrected = False

    def state_dict(self) -> dict[str, object]:
        """The state as plain data."""
        return {
            "fast": self.fast,
            "slow": self.slow,
            "rounds": self.rounds,
            "last_reject": self.last_reject,
            "corrected": self.corrected,
            "quiet_rounds": self.quiet_rounds,
            "mismatch": self.mismatch,
            "mismatch_swing": self.mismatch_swing,
        }

    def load_state_dict(self, data: object) -> None:
        """Take over a saved state.

        Raises:
            ForerunError: a key is missing, unknown or of the wrong kind.
        """
        state = check_keys(data, tuple(self.state_dict()), "acceptance history")
        fast, slow = _optional_float(state["fast"], "fast"), _optional_float(state["slow"], "slow")
        mismatch = _optional_float(state["mismatch"], "mismatch")
        swing = _optional_float(state["mismatch_swing"], "mismatch_swing")
        rounds = read_int(state["rounds"], "rounds")
        quiet = read_int(state["quiet_rounds"], "quiet_rounds")
        last_reject = None if state["last_reject"] is None else read_int(state["last_reject"], "last_reject")
        corrected = None if state["corrected"] is None else read_bool(state["corrected"], "corrected")
        self.fast, self.slow, self.rounds, self.last_reject, self.corrected = fast, slow, rounds, last_reject, corrected
        self.quiet_rounds, self.mismatch, self.mismatch_swing = quiet, mismatch, swing


def _optional_float(value: object, what: str) -> float | None:
    return None if value is None else read_float(value, what)
