"""Blocks that are opened before the horizon is chosen: real networks, the same drafts, costs that say so."""

from typing import final

import pytest
import torch

from forerun.distributions import SamplingParams
from forerun.drafters import ForeseeingSession, NetworkDrafter
from forerun.engine import generate, generate_batch
from forerun.errors import ForerunError
from forerun.horizons import AMTP, Choice, CostSurface, FeatureLevel, HorizonPolicy, RoundContext, RoundFeedback, Signal
from forerun.models import TransformersTarget, tiny_target
from tests.support.horizons import Forced
from tests.support.networks import tiny_drafter

PROMPT = (5, 9, 2, 40, 7, 7)
HORIZONS = (3, 0, 1, 4, 2)


@final
class Sighted(HorizonPolicy):
    """Forced horizons, with a look at the margins."""

    def __init__(self) -> None:
        """Starts at the first."""
        self.inner = Forced(HORIZONS)

    name = "sighted"
    wants = frozenset({Signal.DRAFT_MARGINS})

    def propose(self, context: RoundContext, *, uniform: float) -> Choice:
        """The next one."""
        return self.inner.propose(context, uniform=uniform)

    def observe(self, feedback: RoundFeedback) -> None:
        """Remembers."""
        self.inner.observe(feedback)

    def clone(self) -> "Sighted":
        """From the start again."""
        return Sighted()


def session_after_prompt(target: TransformersTarget, drafter: NetworkDrafter) -> ForeseeingSession:
    """Made afresh."""
    session = drafter.new_session()
    ids = torch.tensor(PROMPT)
    session.extend(ids, target.forward(ids, target.new_cache(), captured=drafter.captured_layers).features)
    return session


@pytest.mark.parametrize(
    ("kind", "temperature"),
    [
        ("medusa", 1.0),
        ("dflash", 0.0),
        *(pytest.param(kind, 1.0, marks=pytest.mark.slow) for kind in ("parallel heads", "dflash")),
    ],
)
def test_drafts_are_those_of_an_engine_that_does_not_look(kind: str, temperature: float) -> None:
    """The same horizons and seed give the same answer, whether the block was opened for a look or not.

    Catches a second block, margins of another round or place, and numbers that the look uses up.
    """
    target = tiny_target()
    drafter = tiny_drafter(target, kind=kind)
    sampling = SamplingParams(temperature=temperature)
    sighted, blind = Sighted(), Forced(HORIZONS)
    texts = [
        generate(target, PROMPT, drafter=drafter, horizon=policy, sampling=sampling, max_new_tokens=20, seed=3)
        for policy in (sighted, blind)
    ]
    assert texts[0].token_ids == texts[1].token_ids
    told_first = sighted.inner.feedback[0].context.draft_margins or ()
    fresh = session_after_prompt(target, drafter).foresee(texts[0].token_ids[0], len(told_first))
    assert told_first == pytest.approx(fresh.tolist(), abs=1e-5) and len(set(told_first)) > 1
    pairs = list(zip(sighted.inner.feedback, blind.feedback, strict=True))
    assert all(mine.overlaps == pytest.approx(other.overlaps, abs=1e-9) for mine, other in pairs)
    for told in sighted.inner.feedback:
        margins, limit = told.context.draft_margins, told.context.limit
        assert (len(margins or ()), told.paid_depth) == (limit, limit if limit else 0)
        assert all(margin >= 0.0 for margin in margins or ())
        assert told.draft_seconds is not None and (told.draft_seconds > 0.0 or limit == 0)


def test_margins_are_those_of_the_laws_that_are_drawn_from() -> None:
    """A fresh session, from the definition: log-probabilities of the proposal's own law."""
    target = tiny_target()
    drafter = tiny_drafter(target, kind="dflash")
    session = session_after_prompt(target, drafter)
    processing = generate(target, [*PROMPT, 3]).request.new_processing()
    uniforms = torch.full((3,), 0.4, dtype=torch.float64)
    margins = session.foresee(3, 4)
    proposal = session.propose(3, 3, processing, uniforms=uniforms)
    first, second = proposal.law.dense().log().topk(2).values.unbind(-1)
    torch.testing.assert_close(margins[:3].double(), (first - second).double(), rtol=0, atol=1e-5)
    session.foresee(3, 4)
    features = target.forward(torch.tensor([3]), target.new_cache(), captured=drafter.captured_layers).features
    session.extend(torch.tensor([3]), features)
    later = session.propose(9, 3, processing, uniforms=uniforms)
    assert not torch.allclose(later.law.dense(), proposal.law.dense()), "a block outlives its round"


def test_amtp_learns_what_a_sunk_block_costs() -> None:
    """C(0) of a surface holds the whole block's drafting. Catches drafting booked under what was verified."""
    target = tiny_target()
    policy = AMTP(costs=CostSurface(), features=FeatureLevel.F4, epsilon=0.3)
    answer = generate(target, PROMPT, drafter=tiny_drafter(target, kind="medusa"), horizon=policy, max_new_tokens=50)
    assert answer.totals.rounds == policy.report.rounds
    surface = policy.cost_table
    assert isinstance(surface, CostSurface)
    drafting = surface.draft_seconds(4)
    sunk, plain = (surface.seconds(4, context_length=60, drafted=drafted) for drafted in (True, False))
    assert 0.0 < drafting[4] < float("inf")
    assert [a - b for a, b in zip(sunk, plain, strict=True)] == pytest.approx([drafting[4] - each for each in drafting])


def test_who_cannot_foresee_is_told_before_anything_runs() -> None:
    """Drafters whose laws wait for the drafts, plain decoding, and batches, which clone the policy."""
    target = tiny_target()
    for drafter in (tiny_drafter(target, kind="dspark"), tiny_drafter(target, kind="eagle3"), None):
        with pytest.raises(ForerunError, match=r"which .* does not have; take medusa, parallel-heads or dflash"):
            generate(target, PROMPT, drafter=drafter, horizon=AMTP(features=FeatureLevel.F4))
    medusa = tiny_drafter(target, kind="medusa")
    batch = generate_batch(
        target, [PROMPT, PROMPT[:3]], drafter=medusa, horizon=AMTP(features=FeatureLevel.F4), max_new_tokens=8
    )
    assert [len(ids) for ids in batch.token_ids] == [8, 8]
