"""A fixed cap and a fixed stop rule: nothing is learned."""

from __future__ import annotations

from typing import final

from forerun.errors import ForerunError
from forerun.horizons.context import RoundContext, RoundFeedback
from forerun.horizons.rivals.deterministic import DeterministicPolicy
from forerun.horizons.rivals.stop_rules import DropBelow, EntropyBound, TopProbability, TopProbabilityGate
from forerun.horizons.stop import StopRule


@final
class StoppingPolicy(DeterministicPolicy):
    """Drafts up to `cap` tokens under a stop rule.

    Args:
        name: for records.
        rule: asked while tokens are drawn.
        cap: most tokens.

    Raises:
        ForerunError: the cap is below 1.
    """

    def __init__(self, name: str, rule: StopRule, *, cap: int) -> None:
        if cap < 1:
            raise ForerunError(f"cap is {cap}: give at least 1 token")
        self.rule = rule
        self.cap = cap
        self._name = name

    @property
    def name(self) -> str:
        """As given."""
        return self._name

    @property
    def exact(self) -> bool:
        """As the rule."""
        return self.rule.exact

    def horizon_for(self, context: RoundContext) -> int:
        """The cap."""
        return self.cap

    ends_drafts = True

    def stop_for(self, context: RoundContext) -> StopRule:
        """The rule."""
        return self.rule

    def observe(self, feedback: RoundFeedback) -> None:
        """Nothing to learn."""

    def clone(self) -> StoppingPolicy:
        """The same."""
        return StoppingPolicy(self._name, self.rule, cap=self.cap)


def kangaroo(*, threshold: float = 0.6, cap: int = 6) -> StoppingPolicy:
    """Kangaroo: behind a kept token with top probability below 0.6; at most 6 tokens.

    References:
        arXiv 2404.18911 and the released code.
    """
    return StoppingPolicy("kangaroo", TopProbability(threshold), cap=cap)


def svip(*, gamma: float = 0.15, threshold: float = 0.3, cap: int = 40) -> StoppingPolicy:
    """SVIP: behind a kept token with sqrt(0.15 H) above 0.3, that is with more than 0.6 nats; at most 40 tokens.

    References:
        arXiv 2411.18462 and the released code.
    """
    return StoppingPolicy("svip", EntropyBound(gamma, threshold), cap=cap)


def llama_cpp(*, n_max: int = 3, n_min: int = 0, p_min: float = 0.0) -> StoppingPolicy:
    """llama.cpp's limits: at most `n_max`, none at all below `n_min`, none with a top probability below `p_min`.

    Older releases had n_max 16 and p_min 0.9.

    References:
        llama.cpp pull requests 22673 and 24508.
    """
    name = "llama-p-min" if p_min > 0.0 else "llama-cpp"
    return StoppingPolicy(name, TopProbabilityGate(p_min, n_min), cap=n_max)


def dropping(*, threshold: float = 0.5, cap: int = 8) -> StoppingPolicy:
    """Negative control, not exact: tokens are dropped for their own draft probabilities.

    References:
        vLLM pull request 44885 (closed).
    """
    return StoppingPolicy("sampled-probability-cut", DropBelow(threshold), cap=cap)
