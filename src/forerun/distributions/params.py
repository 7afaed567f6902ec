"""What a user may ask of sampling; says nothing of how it is done."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from forerun.errors import ForerunError

GREEDY_TEMPERATURE = 1e-5
"""Below this temperature sampling is greedy: the one threshold that draft and verification share."""

LogitsProcessor = Callable[..., Tensor]
"""What transformers calls a ``LogitsProcessor``: from ids (1, length) and scores (1, vocab) to scores (1, vocab)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Processing of logits before a token is drawn, applied in the order of the fields.

    The order is that of transformers' ``generate``, where ``logit_bias`` is ``sequence_bias`` of single tokens;
    presence and frequency penalty, which transformers lacks, follow the repetition penalty as in vLLM. Departures:
    a bad word that is a stop id is forbidden too (transformers leaves it out), and tied tokens at the edge of the
    nucleus all stay.

    Steps up to ``processors`` may look at the tokens that stand before a row: prompt, answer, and the drafted tokens
    of the block before that row. Greedy decoding takes the largest logit after ``processors``.

    Attributes:
        logit_bias: From token id to the number added to its logit; minus infinity forbids it. Kept as sorted pairs.
        repetition_penalty: Logits of tokens in prompt or answer are divided by it if positive, else multiplied;
            1 is off.
        presence_penalty: Subtracted from the logits of tokens in the answer; 0 is off.
        frequency_penalty: Subtracted once for every occurrence of the token in the answer; 0 is off.
        bad_words: Sequences of token ids that may not be completed: the last id is forbidden where the others have
            just been said.
        min_new_tokens: Stop ids are forbidden until the answer has this many tokens.
        processors: Objects of transformers' ``LogitsProcessor`` kind (a ``LogitsProcessorList`` will do), called in
            order with ids (1, length) and scores (1, vocab) of one row. They must be functions of their arguments,
            for speculation also calls them with drafts that may be rejected, and with drafts that they would forbid.
        temperature: Logits are divided by it; below ``GREEDY_TEMPERATURE`` the most probable token is taken.
        top_k: Only the ``top_k`` most probable tokens stay, with those that tie with the last; ``None`` is off.
        top_p: Only the most probable tokens that together reach this mass stay; 1 is off.
        min_p: Only tokens with at least this fraction of the most probable token's probability stay; 0 is off.
        typical_p: Only the tokens whose information content is nearest to the entropy and that together reach this
            mass stay; 1 is off.

    Raises:
        ForerunError: A value is outside its range.
    """

    logit_bias: Mapping[int, float] | tuple[tuple[int, float], ...] = ()
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    bad_words: Sequence[Sequence[int]] = ()
    min_new_tokens: int = 0
    processors: Sequence[LogitsProcessor] = ()
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0

    def __post_init__(self) -> None:
        """Refuses values outside their range; turns collections into tuples, so that the value can be a key."""
        object.__setattr__(self, "logit_bias", tuple(sorted(dict(self.logit_bias).items())))
        object.__setattr__(self, "bad_words", tuple(tuple(word) for word in self.bad_words))
        self._check_bias_and_bans()
        self._check_penalties()
        if not isinstance(self.processors, Sequence) or not all(map(callable, self.processors)):
            raise ForerunError(f"processors is {self.processors!r}; give a list of LogitsProcessor objects")
        object.__setattr__(self, "processors", tuple(self.processors))
        if not (math.isfinite(self.temperature) and self.temperature >= 0.0):
            raise ForerunError(f"temperature is {self.temperature}; give a finite number that is 0 (greedy) or more")
        if self.top_k is not None and self.top_k < 1:
            raise ForerunError(f"top_k is {self.top_k}; give 1 or more, or None to keep every token")
        for name, share in (("top_p", self.top_p), ("typical_p", self.typical_p)):
            if not 0.0 < share <= 1.0:
                raise ForerunError(f"{name} is {share}; give a number above 0 and at most 1 (1 keeps every token)")
        if not 0.0 <= self.min_p < 1.0:
            raise ForerunError(f"min_p is {self.min_p}; give a number from 0 (keeps every token) to below 1")

    def _check_bias_and_bans(self) -> None:
        for token_id, value in self.bias_pairs:
            if not isinstance(token_id, int) or token_id < 0:
                raise ForerunError(f"logit_bias names token {token_id!r}; give token ids, 0 or more")
            if math.isnan(value) or value == math.inf:
                raise ForerunError(
                    f"logit_bias of token {token_id} is {value}; give a finite number, or -inf to forbid"
                )
        for word in self.bad_words:
            if not word or any(not isinstance(token_id, int) or token_id < 0 for token_id in word):
                raise ForerunError(f"bad_words holds {word!r}; give sequences of one or more token ids, 0 or more each")
        if self.min_new_tokens < 0:
            raise ForerunError(f"min_new_tokens is {self.min_new_tokens}; give 0 (off) or more")

    def _check_penalties(self) -> None:
        if not (math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0.0):
            raise ForerunError(
                f"repetition_penalty is {self.repetition_penalty}; give a finite number above 0 (1 is off)"
            )
        for name, penalty in (
            ("presence_penalty", self.presence_penalty),
            ("frequency_penalty", self.frequency_penalty),
        ):
            if not math.isfinite(penalty):
                raise ForerunError(f"{name} is {penalty}; give a finite number (0 is off)")

    @property
    def bias_pairs(self) -> tuple[tuple[int, float], ...]:
        """``logit_bias`` as pairs of token id and number, rising in id."""
        return tuple(dict(self.logit_bias).items())

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is taken instead of a random one."""
        return self.temperature < GREEDY_TEMPERATURE

    @property
    def row_only(self) -> bool:
        """Whether no step looks at anything but the row of logits."""
        return (
            self.repetition_penalty == 1.0
            and self.presence_penalty == 0.0
            and self.frequency_penalty == 0.0
            and not self.bad_words
            and self.min_new_tokens == 0
            and not self.processors
        )

    @property
    def truncation(self) -> "SamplingParams":
        """The steps after ``processors`` alone: temperature and the cuts."""
        return SamplingParams(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            typical_p=self.typical_p,
        )

    def check_vocabulary(self, vocab_size: int) -> None:
        """Refuses token ids that the vocabulary does not have.

        Raises:
            ForerunError: An id in ``logit_bias`` or ``bad_words`` is not below ``vocab_size``.
        """
        biased = [token_id for token_id, _ in self.bias_pairs]
        banned = [token_id for word in self.bad_words for token_id in word]
        for name, token_ids in (("logit_bias", biased), ("bad_words", banned)):
            largest = max(token_ids, default=-1)
            if largest >= vocab_size:
                raise ForerunError(f"{name} names token {largest}; the vocabulary ends at {vocab_size - 1}")
