"""The shipped pair keeps its target's greedy answers."""

from __future__ import annotations

import pytest

from forerun.distributions import SamplingParams
from forerun.engine import generate
from forerun.evaluation import greedy_verdict
from forerun.recipes import shipped_prompts
from tests.support.real import real_target, shipped_drafter

pytestmark = pytest.mark.real_model

TOKENS = 10


@pytest.mark.parametrize("place", [0, 1, 2])
def test_drafts_do_not_change_greedy_answers(place: int) -> None:
    """Catches a lost or doubled token with real weights; a difference is allowed at a near-tie only, and is shown."""
    target, greedy = real_target(), SamplingParams(temperature=0.0)
    prompt = shipped_prompts(3)[place].text
    plain = generate(target, prompt, sampling=greedy, max_new_tokens=TOKENS)
    drafted = generate(target, prompt, drafter=shipped_drafter(), horizon=4, sampling=greedy, max_new_tokens=TOKENS)
    verdict = greedy_verdict(target, plain.request.prompt_ids, plain.token_ids, drafted.token_ids)
    assert verdict.passed, verdict.describe(target.tokenizer.token_of)
    assert drafted.totals.drafted > 0
