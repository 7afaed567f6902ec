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
