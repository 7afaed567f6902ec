"""Everything that decides an answer, checked and fixed before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from forerun.distributions import Processing, SamplingParams, Streams
from forerun.drafters import Drafter, TreeDrafter
from forerun.engine.detokenizer import Detokenizer
from forerun.engine.stops import StopWatch
from forerun.horizons import HorizonPolicy, Signal
from forerun.models import Target
from forerun.verification import Rule, TreeRule


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One answer to be written.

    Attributes:
        number: of the request under its seed; errors name it.
        target: the model whose law the answer follows.
        drafter: proposes tokens; ``None`` for plain decoding.
        policy: chooses horizons; goes on learning where the caller shares it among requests.
        rule: acceptance rule, for trees where the drafter proposes trees.
        prompt_ids: at least one token.
        sampling: processing of logits.
        max_new_tokens: cap on the answer, as far as the target's context reaches.
        streams: random numbers of this request alone.
        stop_ids: ids that end the answer; none where they are ignored.
        stop_strings: texts that end it.
        decode: ids to text; ``None`` for targets without text.
        logprobs: how many of the likeliest tokens to report beside each emitted one; ``None`` for no report.
    """

    number: int
    target: Target
    drafter: Drafter | TreeDrafter | None
    policy: HorizonPolicy
    rule: Rule | TreeRule
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    max_new_tokens: int
    streams: Streams
    stop_ids: frozenset[int]
    stop_strings: tuple[str, ...]
    decode: Callable[[list[int]], str] | None
    logprobs: int | None

    @property
    def captured_layers(self) -> tuple[int, ...]:
        """Target layers that the drafter reads; the last one where only the horizon policy asks for a hidden state."""
        layers = () if self.drafter is None else self.drafter.captured_layers
        if not layers and Signal.HIDDEN_STATE in self.policy.wants:
            return (self.target.num_layers - 1,)
        return layers

    def limit(self, length: int) -> int:
        """Largest horizon that drafter, cap and context allow once ``length`` tokens are committed."""
        if self.drafter is None:
            return 0
        left = self.max_new_tokens - (length - len(self.prompt_ids))
        limit = min(left - 1, self.drafter.max_horizon)  # the correction or bonus token needs a place too
        if self.drafter.max_positions is not None:
            limit = min(limit, self.drafter.max_positions - length)
        return max(limit, 0)

    def beyond_drafter(self, length: int) -> bool:
        """Whether ``length`` tokens are more than the drafter can handle."""
        longest = None if self.drafter is None else self.drafter.max_positions
        return longest is not None and length >= longest

    def block_size(self, horizon: int, length: int) -> int:
        """Tokens that a chain drafter drafts where `horizon` are verified.

        A drafter whose earlier laws depend on how many tokens follow drafts its whole block, so that hazards mean the
        same at every horizon; exact, because the horizon was chosen before and the laws are those that were sampled.
        """
        drafter = self.drafter
        assert isinstance(drafter, Drafter)
        if drafter.prefix_consistent or self.policy.horizon_dependent:
            return horizon
        if drafter.max_positions is None:
            return drafter.max_horizon
        return min(drafter.max_horizon, drafter.max_positions - length)

    def new_watch(self) -> StopWatch:
        """A stop watch at the start of the answer."""
        return StopWatch(
            stop_ids=self.stop_ids,
            stop_strings=self.stop_strings,
            max_new_tokens=self.max_new_tokens,
            detokenizer=None if self.decode is None else Detokenizer(self.decode),
        )

    def new_processing(self) -> Processing:
        """Processing of logits after the prompt."""
        return Processing(self.sampling, self.prompt_ids, stop_ids=tuple(self.stop_ids))
