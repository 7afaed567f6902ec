"""Logits of one request to laws, with what the request has said so far."""

from collections.abc import Sequence
from typing import final

from jaxtyping import Bool, Float
from torch import Tensor

from forerun.distributions.bad_words import BadWords
from forerun.distributions.law import Law
from forerun.distributions.min_new_tokens import MinNewTokens
from forerun.distributions.params import SamplingParams
from forerun.distributions.penalties import Penalties
from forerun.distributions.prefix_step import PrefixStep
from forerun.distributions.processing import biased, law_from_logits, law_without_waiting, widened
from forerun.distributions.user_processors import UserProcessors


@final
class Processing:
    """The sampling parameters of one request together with its prompt and answer.

    The target's rows and the drafter's go through the same object, each row with the tokens that would stand before
    it: prompt, answer and the drafted tokens of the block so far. With parameters that look at nothing but the row
    (``params.row_only``) this is ``law_from_logits`` on all rows at once.

    Args:
        params: What the user asked for.
        prompt_ids: The prompt.
        stop_ids: Tokens that end the answer.

    Example:
        >>> import torch
        >>> processing = Processing(SamplingParams(temperature=0.0, frequency_penalty=0.2), prompt_ids=[2])
        >>> logits = torch.tensor([[2.0, 1.9, 0.0]] * 3)  # of a model that always says the same
        >>> processing.law(logits, drafted=[0, 0]).dense().argmax(-1).tolist()
        [0, 1, 1]
        >>> processing.commit(0)
        >>> processing.law(logits[:1]).dense().argmax(-1).tolist()
        [1]
    """

    def __init__(self, params: SamplingParams, prompt_ids: Sequence[int], *, stop_ids: Sequence[int] = ()) -> None:
        """Starts with an empty answer."""
        self._params = params
        self._steps = _steps(params, prompt_ids, stop_ids)
        self._truncation = params.truncation
        self._ids_checked = False  # the size of the vocabulary is known with the first logits

    @property
    def params(self) -> SamplingParams:
        """As given."""
        return self._params

    def commit(self, token_id: int) -> None:
        """The answer grew by one token; constant time."""
        for step in self._steps:
            step.commit(token_id)

    @property
    def same_everywhere(self) -> bool:
        """Whether the law of a row of logits is the same wherever the row stands in the text."""
        return not self._steps

    def law(self, logits: Float[Tensor, "rows vocab"], drafted: Sequence[int] = ()) -> Law:
        """Laws along a chain: row j stands after prompt, answer and ``drafted[:j]``.

        Args:
            logits: One row more than there are drafted tokens.
            drafted: The block's draft tokens.

        Raises:
            UnusableLogits: A row holds NaN or plus infinity, or nothing but minus infinity.
            ForerunError: A parameter names a token that the vocabulary does not have, or a processor misbehaves.
        """
        return self.law_of_paths(logits, [drafted[:length] for length in range(len(drafted) + 1)])

    def law_after(self, logits: Float[Tensor, "1 vocab"], drafted: Sequence[int]) -> Law:
        """Law of the one row that stands after all of ``drafted``. Raises as ``law`` does."""
        return self.law_of_paths(logits, [drafted])

    def law_without_waiting(self, logits: Float[Tensor, "rows vocab"]) -> tuple[Law, Bool[Tensor, " rows"]]:
        """Laws of rows anywhere in the text, and which of them are any; see ``processing.law_without_waiting``.

        Only where ``same_everywhere``.
        """
        assert self.same_everywhere, "the law depends on where the row stands"
        return law_without_waiting(logits, self._params)

    def law_of_paths(self, logits: Float[Tensor, "rows vocab"], paths: Sequence[Sequence[int]]) -> Law:
        """Laws in a tree: row i stands after the draft tokens ``paths[i]``. Raises as ``law`` does."""
        assert len(logits) == len(paths), f"{len(logits)} rows of logits for {len(paths)} places"
        if not self._steps:
            return law_from_logits(logits, self._params)
        if not self._ids_checked:
            self._params.check_vocabulary(logits.shape[-1])
            self._ids_checked = True
        logits = biased(logits, self._params) if self._params.logit_bias else widened(logits)
        for step in self._steps:
            logits = step.apply(logits, paths)
        return law_from_logits(logits, self._truncation)


def _steps(params: SamplingParams, prompt_ids: Sequence[int], stop_ids: Sequence[int]) -> list[PrefixStep]:
    """The steps that look at earlier tokens and are not off, in the order of ``SamplingParams``."""
    steps: list[PrefixStep] = []
    if params.repetition_penalty != 1.0 or params.presence_penalty != 0.0 or params.frequency_penalty != 0.0:
        steps.append(Penalties(params, prompt_ids))
    if params.bad_words:
        steps.append(BadWords(params.bad_words, prompt_ids))
    if params.min_new_tokens:
        steps.append(MinNewTokens(params.min_new_tokens, stop_ids))
    if params.processors:
        steps.append(UserProcessors(params.processors, prompt_ids))
    return steps
