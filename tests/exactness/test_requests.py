"""Whole generations under steps that look at what was said, by enumeration: penalties, bans, a user's processor.

The target's rows come from the package's ``Processing`` one block at a time, as in the engine; the expected law is that
of plain decoding, computed in plain Python with everything recounted for every token.
"""

from typing import Any

import pytest

from forerun.distributions import Processing, SamplingParams
from forerun.distributions.bad_words import BadWords
from forerun.distributions.min_new_tokens import MinNewTokens
from forerun.distributions.penalties import Penalties
from forerun.distributions.user_processors import UserProcessors
from forerun.verification import TokenLevel
from tests.exactness.enumerate import Horizons, Model, Tokens, chain_law, distance, generation_law
from tests.exactness.mutation import mutated
from tests.exactness.policies import fixed
from tests.exactness.requests import Moody, RequestModel, moody, plain_request
from tests.exactness.tables import processed, random_logits

TOLERANCE = 1e-12
RED = 1e-3
PROMPT: Tokens = (1, 0, 1)
STOP_IDS: Tokens = (2,)
VOCAB, NUM_TOKENS = 3, 3
# Repetition penalty treats the signs differently, so every row of the target has both.
TARGET_LOGITS = {
    state: [logit - sum(row) / VOCAB for logit in row] for state, row in random_logits(31, VOCAB, 1).items()
}
DRAFT_LOGITS = random_logits(32, VOCAB, 1)

SETTINGS: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 1.8},
    "presence": {"presence_penalty": 1.1},
    "frequency": {"frequency_penalty": 0.7},
    "bad-words": {"bad_words": [[1, 1], [0, 2, 0], [2, 2], [1, 0, 1, 2]]},
    "min-new-tokens": {"min_new_tokens": 2},
    "processor": {"processors": [Moody()]},
    "all": {
        "logit_bias": {0: 0.75, 2: -0.5},
        "repetition_penalty": 1.3,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.3,
        "bad_words": [[1, 1], [0, 2]],
        "min_new_tokens": 2,
        "processors": [Moody()],
        "temperature": 1.3,
        "top_p": 0.95,
    },
    "greedy": {"temperature": 0.0, "repetition_penalty": 1.3, "frequency_penalty": 0.6},
}


def missed_by(settings: dict[str, Any], horizons: Horizons, *, draft_processed: bool = True) -> float:
    """How far the law of a generation is from plain decoding's."""
    params = SamplingParams(**settings)
    target = RequestModel(TARGET_LOGITS, params, PROMPT, STOP_IDS)
    draft: Model = (
        RequestModel(DRAFT_LOGITS, params, PROMPT, STOP_IDS)
        if draft_processed
        else processed(DRAFT_LOGITS, SamplingParams())
    )
    law = generation_law(
        target=target,
        draft=draft,
        block=target.block,
        rule=TokenLevel(),
        horizons=horizons,
        prompt=PROMPT,
        num_tokens=NUM_TOKENS,
    )
    user = moody if params.processors else (lambda _, row: row)
    plain = plain_request(TARGET_LOGITS, params, PROMPT, STOP_IDS, user)
    return distance(law, chain_law(plain, PROMPT, NUM_TOKENS))


@pytest.mark.parametrize("draft_processed", [True, False], ids=["draft-processed", "draft-raw"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_output_law_is_plain_decodings(settings: dict[str, Any], draft_processed: bool) -> None:
    """C24 for laws: catches the prefix before the block, a step left out, counts that keep rejected drafts."""
    assert missed_by(settings, fixed(2), draft_processed=draft_processed) <= TOLERANCE


MUTANTS: dict[str, tuple[type, str, str, str, list[str]]] = {
    "prefix-before-the-block": (
        Processing, "law", "drafted[:length]", "drafted[:0]",
        ["repetition", "presence", "frequency", "bad-words", "min-new-tokens", "processor"],
    ),
    "counts-of-drafts-only": (Penalties, "commit", "+= 1", "+= 0", ["frequency"]),
    "repetition-ignores-the-prompt": (Penalties, "apply", "said[:, :known] = True", "pass", ["repetition"]),
    "positive-logits-only": (Penalties, "_penalised", "logits * params.rep", "logits / params.rep", ["repetition"]),
    "answer-forgotten": (BadWords, "commit", "self._recent.append(token_id)", "pass", ["bad-words"]),
    "prompt-forgotten": (UserProcessors, "apply", "np.array(self._said)", "np.array(self._said[2:])", ["processor"]),
    "one-stop-too-early": (MinNewTokens, "apply", "< self._missing", "< self._missing - 1", ["min-new-tokens"]),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "method", "old", "new", "seen_by"), MUTANTS.values(), ids=MUTANTS.keys())
def test_broken_processing_is_red(
    kind: type, method: str, old: str, new: str, seen_by: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each mutant puts in the bug that its name says."""
    monkeypatch.setattr(kind, method, mutated(vars(kind)[method], old, new))
    for name in seen_by:
        assert missed_by(SETTINGS[name], fixed(1)) > RED, name
