"""What the engine asks of anything that proposes tokens.

Sharing: a drafter is read-only and may serve many requests; a session holds everything that one request has taught it.
The one exception is ``end``: a drafter that learns from finished answers takes them in there, for sessions that begin
later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor

from forerun.distributions import Processing
from forerun.drafters.declarations import Dependence, Need, Saving
from forerun.drafters.stop import DraftStop
from forerun.verification import Proposal


class ProposerSession(ABC):
    """The state for one request of anything that proposes."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Tokens of the sequence that the session has taken in; equals the target's cache length between rounds."""

    @abstractmethod
    def extend(self, token_ids: Int[Tensor, " length"], features: Float[Tensor, "length layers hidden"]) -> None:
        """Take in tokens that are committed *and* processed by the target, in order, with the target's features.

        Called once after the prompt and once in every round, rounds without drafts included, so there are no holes.
        """

    def end(self, answer_ids: Sequence[int]) -> None:  # noqa: B027 - most proposers have nothing to do here
        """The answer is complete, or was cancelled; called once, last. What it teaches may help later requests only.

        Args:
            answer_ids: every emitted token.
        """


class DrafterSession(ProposerSession):
    """The drafter's state for one request."""

    @abstractmethod
    def propose(
        self,
        last_token: int,
        horizon: int,
        processing: Processing,
        *,
        uniforms: Float[Tensor, " horizon"],
        stop: DraftStop | None = None,
    ) -> Proposal:
        """Draft up to ``horizon`` tokens after ``last_token``, each with the law it was drawn from.

        The proposal may still be on its way (``Proposal.read``).

        Args:
            last_token: committed (in ``processing`` too), not yet processed by the target; position ``length``.
            horizon: at least 1 and at most the drafter's maximum. Fewer tokens may come back (a look-up that finds
                nothing, a row of logits that is no law); how many must not depend on the tokens that are left out.
            processing: of the request; the draft law of a position goes through it with the drafts before that
                position, and the proposal carries the processed law.
            uniforms: one in [0, 1) for each position.
            stop: asked before and after every draw, and may end the draft. ``draw_chain`` does the asking; a drafter
                that draws nothing (a look-up) ignores it.
        """


class ForeseeingSession(DrafterSession):
    """Knows a whole block's laws before anything is drawn from them, for no draft changes the law of another."""

    @abstractmethod
    def foresee(self, last_token: int, limit: int) -> Float[Tensor, " rows"]:
        """Open the round's block; the next ``propose`` draws from this very block.

        Args:
            last_token: as in ``propose``.
            limit: largest horizon that may follow, at least 1.

        Returns:
            For each position the largest minus the second largest log-probability of the draft law at temperature 1,
            before any processing; as far as the rows are laws.
        """


class Proposer(ABC):
    """Something that proposes tokens cheaply, in chains or trees."""

    @property
    @abstractmethod
    def name(self) -> str:
        """For tables and records."""

    @property
    @abstractmethod
    def max_horizon(self) -> int:
        """Most tokens it can draft in one round."""

    @property
    @abstractmethod
    def captured_layers(self) -> tuple[int, ...]:
        """Target layers whose outputs it reads (0-based, output of the layer)."""

    @property
    @abstractmethod
    def max_positions(self) -> int | None:
        """Positions it can handle; beyond them the engine drafts nothing. ``None``: no limit of its own."""

    @property
    @abstractmethod
    def dependence(self) -> Dependence:
        """How a draft's law depends on the drafts before it in the same round."""

    @property
    @abstractmethod
    def saving(self) -> Saving:
        """What a shorter horizon saves."""

    @property
    @abstractmethod
    def needs(self) -> frozenset[Need]:
        """What the target has to supply besides tokens."""


class Drafter(Proposer):
    """Something that proposes chains of tokens. ``new_session`` starts one request."""

    @property
    @abstractmethod
    def prefix_consistent(self) -> bool:
        """Whether a shorter horizon leaves the laws of the earlier drafts unchanged."""

    @property
    def foresees(self) -> bool:
        """Whether its sessions are ``ForeseeingSession``s."""
        return False

    @abstractmethod
    def new_session(self) -> DrafterSession:
        """State for one request."""
