"""What every drafter promises. A new drafter class finds itself in this suite or turns it red."""

from collections.abc import Callable
from functools import cache, partial

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

from benchmarks.device_reads import DeviceReads
from forerun.distributions import PointLaw, Processing, SamplingParams
from forerun.drafters import (
    Drafter,
    DrafterSession,
    DraftModel,
    MaskTokenModel,
    MaskTokenRiders,
    NetworkDrafter,
    PastOutputs,
    PromptLookup,
    ProposalPolicy,
    RidingSession,
    SuffixLookup,
)
from forerun.engine import generate, generate_batch
from forerun.models import TargetCache, TransformersTarget, tiny_target
from forerun.verification import Proposal
from tests.engine.test_greedy import run_in_step
from tests.support.accelerator import compute_as_on_an_accelerator
from tests.support.horizons import Forced
from tests.support.masks import add_mask
from tests.support.networks import CONFIGS, VARIANTS, every_other, kinds_with_slow_variants, tiny_drafter
from tests.support.targets import fresh_greedy, random_table

VOCAB = 6
PARAMS = SamplingParams()
CLOSE = 1e-12
"""Float64; pieces and whole differ by rounding at most."""
HALF_PRECISION = 0.2
"""Total variation of a first draft's law; weights are random and large, so eight bits of logits of about 10 show."""
IDS = torch.tensor([3, 1, 4, 1, 5, 2, 3, 1, 4])


@cache
def target() -> TransformersTarget:
    return tiny_target(vocab_size=VOCAB)


@cache
def mask() -> int:
    return add_mask(target())


def mask_model(policy: ProposalPolicy = ProposalPolicy.SAMPLE) -> MaskTokenModel:
    small = tiny_target(seed=1, vocab_size=VOCAB, hidden_size=16)
    return MaskTokenModel(small, add_mask(small), target(), max_horizon=4, policy=policy)


def remembering(max_horizon: int, max_match: int, *outputs: list[int]) -> SuffixLookup:
    """Draws from what followed in these outputs and in the request."""
    past = PastOutputs(max_match=max_match)
    for output in outputs:
        past.add(output)
    return SuffixLookup(
        VOCAB, max_match=max_match, max_horizon=max_horizon, match_factor=None, min_probability=0.0,
        policy=ProposalPolicy.SAMPLE, past=past,
    )  # fmt: skip


MAKERS: dict[str, Callable[[], Drafter]] = {
    "PromptLookup": lambda: PromptLookup(VOCAB, max_horizon=4),
    "SuffixLookup": lambda: SuffixLookup(VOCAB, max_horizon=4),
    "SuffixLookup, drawn": lambda: remembering(4, 8, [1, 4, 2, 5, 0, 1], [1, 4, 2, 3, 3, 0, 5, 5]),
    "DraftModel": lambda: DraftModel(tiny_target(seed=1, vocab_size=VOCAB, hidden_size=16), target(), max_horizon=4),
    "DraftModel, pruned": lambda: DraftModel(
        tiny_target(seed=1, vocab_size=VOCAB, hidden_size=16), target(), max_horizon=4, vocabulary=every_other(target())
    ),
    "NetworkDrafter, pruned": lambda: tiny_drafter(target(), vocabulary=every_other(target())),
    "NetworkDrafter, argmax": lambda: tiny_drafter(target(), policy=ProposalPolicy.ARGMAX),
    **{f"NetworkDrafter, {kind}": partial(tiny_drafter, target(), kind=kind) for kind in CONFIGS},
    "MaskTokenModel": mask_model,
    "MaskTokenModel, argmax": lambda: mask_model(ProposalPolicy.ARGMAX),
    "MaskTokenModel, the target": lambda: MaskTokenModel(target(), mask(), target(), max_horizon=4),
    "MaskTokenRiders": lambda: MaskTokenRiders(target(), mask(), max_horizon=4, growth=4),
}


def test_every_drafter_of_the_package_is_in_this_suite() -> None:
    """Catches a new drafter that nobody tests."""
    classes = {kind.__name__ for kind in Drafter.__subclasses__() if kind.__module__.startswith("forerun.")}
    assert classes == {name.partition(",")[0] for name in MAKERS}
    assert {NetworkDrafter.__name__, DraftModel.__name__, PromptLookup.__name__} <= classes


SLOW = {f"NetworkDrafter, {kind}" for kind in VARIANTS}


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in MAKERS], scope="module"
)
def drafter(request: pytest.FixtureRequest) -> Drafter:
    return MAKERS[request.param]()


def feed(drafter: Drafter, session: DrafterSession, ids: Int[Tensor, " length"], sizes: tuple[int, ...] = ()) -> None:
    """Hand tokens over as the engine would: the target's features with them, in pieces of these sizes."""
    read = target().new_cache()
    for piece in ids.split([*sizes, len(ids) - sum(sizes)]):
        feed_piece(drafter, session, piece, read)


def feed_piece(drafter: Drafter, session: DrafterSession, piece: Int[Tensor, " length"], read: TargetCache) -> None:
    """As the engine would: riders go along where the drafter has some."""
    tokens, length = piece, read.length + len(piece)
    if isinstance(session, RidingSession):
        tokens, _ = session.board([drafter.max_horizon]).behind(piece)
    step = target().forward(tokens, read, captured=drafter.captured_layers)
    read.rollback(length)
    session.extend(piece, step.features[: len(piece)])
    if isinstance(session, RidingSession):
        session.arrive(step.logits[len(piece) :])


def started(drafter: Drafter, ids: Int[Tensor, " length"] = IDS) -> DrafterSession:
    session = drafter.new_session()
    feed(drafter, session, ids)
    return session


def is_certain(drafter: Drafter) -> bool:
    """Whether its drafts are decided by the context alone."""
    return isinstance(drafter, PromptLookup) or drafter.name.endswith(":argmax")


def uniforms(seed: int, count: int = 4) -> Float[Tensor, " count"]:
    return torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def propose(session: DrafterSession, seed: int, horizon: int = 4, params: SamplingParams = PARAMS) -> Proposal:
    return session.propose(2, horizon, Processing(params, [*IDS.tolist(), 2]), uniforms=uniforms(seed)[:horizon])


def test_a_drafter_describes_itself(drafter: Drafter) -> None:
    """Catches limits and layers that do not fit the target."""
    assert drafter.name
    assert drafter.max_horizon == 4
    assert all(0 <= layer < target().num_layers for layer in drafter.captured_layers)
    assert drafter.max_positions is None or drafter.max_positions > 0
    assert drafter.prefix_consistent


@pytest.mark.parametrize("params", [PARAMS, SamplingParams(temperature=0.5, top_k=2), SamplingParams(temperature=0.0)])
def test_proposals_are_tokens_with_their_laws(drafter: Drafter, params: SamplingParams) -> None:
    """Catches laws that are no laws, of another vocabulary, or before processing."""
    session = started(drafter)
    for seed in range(6):
        proposal = propose(session, seed, params=params)
        assert proposal.horizon <= 4
        assert proposal.law.vocab_size == VOCAB
        probs = proposal.law.dense()
        torch.testing.assert_close(probs.sum(-1), torch.ones(proposal.horizon, dtype=torch.float64))
        assert bool((proposal.law.prob_of(proposal.token_ids) > 0).all())
        if params.top_k is not None:
            assert bool(((probs > 0).sum(-1) <= params.top_k).all())
        if params.greedy:
            assert isinstance(proposal.law, PointLaw)


def test_a_shorter_horizon_leaves_the_earlier_drafts_alone(drafter: Drafter) -> None:
    """Catches a horizon that changes what is drafted: the choice of a horizon would then change laws."""
    whole = propose(started(drafter), seed=1)
    for horizon in range(1, 4):
        shorter = propose(started(drafter), seed=1, horizon=horizon)
        assert shorter.token_ids.tolist() == whole.token_ids[:horizon].tolist()
        torch.testing.assert_close(shorter.law.dense(), whole.law.dense()[:horizon], rtol=0, atol=CLOSE)


def test_uniforms_decide_everything(drafter: Drafter) -> None:
    """Catches other sources of randomness; and a drafter that samples must use the numbers it is given."""
    for seed in range(3):
        first, second = propose(started(drafter), seed), propose(started(drafter), seed)
        assert first.token_ids.tolist() == second.token_ids.tolist()
        assert torch.equal(first.law.dense(), second.law.dense())
    drafts = {tuple(propose(started(drafter), seed).token_ids.tolist()) for seed in range(8)}
    assert (len(drafts) > 1) == (not is_certain(drafter))


@pytest.mark.parametrize(
    "params",
    [PARAMS, SamplingParams(temperature=0.0), SamplingParams(temperature=0.6, top_k=3, top_p=0.9, min_p=0.01)],
)
def test_drafting_does_not_wait_for_the_device(
    drafter: Drafter, params: SamplingParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host reads drafts once, when it likes. Catches a token, a check or a map that is read for each of them."""
    compute_as_on_an_accelerator(monkeypatch)
    session, numbers = started(drafter), uniforms(1)
    request = Processing(params, [*IDS.tolist(), 2])
    with DeviceReads(host=[numbers]) as reads:
        proposal = session.propose(2, 4, request, uniforms=numbers)
        assert reads.count == 0
        proposal.read()
        assert reads.count == (0 if isinstance(drafter, SuffixLookup | PromptLookup) else 1)


def test_proposing_changes_nothing(drafter: Drafter) -> None:
    """Catches drafts that stay in the drafter's state although they may be rejected."""
    session = started(drafter)
    first = propose(session, seed=1)
    propose(session, seed=2, horizon=2)
    again = propose(session, seed=1)
    assert session.length == len(IDS)
    assert again.token_ids.tolist() == first.token_ids.tolist()
    torch.testing.assert_close(again.law.dense(), first.law.dense(), rtol=0, atol=CLOSE)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (8,), (4, 3), (1, 7)])
def test_tokens_may_come_in_any_pieces(drafter: Drafter, sizes: tuple[int, ...]) -> None:
    """Catches positions and n-grams that break at the border of two pieces, with drafts in between."""
    session, read = drafter.new_session(), target().new_cache()
    start = 0
    for size in (*sizes, len(IDS) - sum(sizes)):
        feed_piece(drafter, session, IDS[start : start + size], read)
        start += size
        assert session.length == start
        propose(session, seed=start)
    expected, found = propose(started(drafter), seed=3), propose(session, seed=3)
    assert found.token_ids.tolist() == expected.token_ids.tolist()
    torch.testing.assert_close(found.law.dense(), expected.law.dense(), rtol=0, atol=CLOSE)


def test_sessions_do_not_see_each_other(drafter: Drafter) -> None:
    """Catches state in the drafter itself: one request's tokens in another's drafts."""
    first, second = drafter.new_session(), drafter.new_session()
    feed(drafter, first, IDS)
    feed(drafter, second, IDS.flip(0))
    expected = [propose(started(drafter, ids), seed=5) for ids in (IDS, IDS.flip(0))]
    for session, alone in zip((first, second), expected, strict=True):
        torch.testing.assert_close(propose(session, seed=5).law.dense(), alone.law.dense(), rtol=0, atol=CLOSE)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_bookkeeping_through_the_engine(drafter: Drafter, temperature: float) -> None:
    """C34. Catches sessions that fall out of step with the target's cache, in rounds without drafts above all."""
    params = SamplingParams(temperature=temperature)
    generation = generate(
        target(), IDS.tolist(), drafter=drafter, horizon=Forced([2, 0, 4, 1]), sampling=params, max_new_tokens=30
    )
    run_in_step(generation)
    if params.greedy:
        assert generation.token_ids == fresh_greedy(target(), IDS.tolist(), 30)[len(IDS) :]


def test_a_batch_drafts_what_each_row_would_draft_alone(drafter: Drafter) -> None:
    """Catches rows that share a session, features of another row, and drafts in another row's place."""
    if isinstance(drafter, SuffixLookup) and drafter.past is not None:
        pytest.skip("it learns from finished answers, so company matters")
    prompts = [IDS.tolist(), [2, 5], [1, 1, 4, 0, 3]]
    batch = generate_batch(target(), prompts, drafter=drafter, horizon=3, max_new_tokens=9, seed=4)
    for number, (prompt, answer) in enumerate(zip(prompts, batch.answers, strict=True)):
        alone = generate(target(), prompt, drafter=drafter, horizon=3, max_new_tokens=9, seed=4, request=number)
        assert answer.token_ids == alone.token_ids
        assert answer.totals.drafted == alone.totals.drafted and answer.totals.accepted == alone.totals.accepted


@pytest.mark.parametrize("kind", kinds_with_slow_variants())
def test_networks_draft_in_half_precision(kind: str) -> None:
    """Catches constants and masks in another type than the target's, and laws that stop being laws."""
    half = tiny_target(vocab_size=VOCAB, dtype=torch.bfloat16)
    full = tiny_target(vocab_size=VOCAB, dtype=torch.float32)
    laws = []
    for own in (half, full):
        session = tiny_drafter(own, kind=kind).new_session()
        layers = tiny_drafter(own, kind=kind).captured_layers
        features = own.forward(IDS, own.new_cache(), captured=layers).features
        assert features.dtype == own.dtype
        session.extend(IDS, features)
        laws.append(propose(session, seed=1, horizon=1).law.dense()[0])
    assert float(laws[0].sum()) == pytest.approx(1.0, abs=1e-6)
    assert float((laws[0] - laws[1]).abs().sum()) / 2 < HALF_PRECISION, laws


SEED, DRAWS, BLOCK_OF_MANY, STANDARD_ERRORS = 30, 8_000, 8, 4.5
"""A right drafter is beyond 4.5 standard errors in one of 150,000 looks; each test looks at 48 tokens and places."""

DRAWING: dict[str, Callable[[], Drafter]] = {
    "DraftModel": lambda: DraftModel(
        random_table(1, vocab_size=VOCAB), random_table(2, vocab_size=VOCAB), max_horizon=BLOCK_OF_MANY
    ),
    "NetworkDrafter": lambda: tiny_drafter(target(), vocabulary=every_other(target()), block=BLOCK_OF_MANY),
    "MaskTokenRiders": lambda: MaskTokenRiders(target(), mask(), max_horizon=BLOCK_OF_MANY),
    "SuffixLookup": lambda: remembering(
        BLOCK_OF_MANY, 2, torch.randint(VOCAB, (300,), generator=torch.Generator().manual_seed(SEED)).tolist()
    ),
}


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("name", DRAWING)
def test_drafted_tokens_follow_the_law_that_comes_with_them(name: str) -> None:
    """Rule 2 of the design. Catches a law before processing, of another place, or of another draft prefix.

    At each place of the block and for each token, the count is compared with the sum of the laws' probabilities.
    """
    drafter = DRAWING[name]()
    session = started(drafter)
    generator = torch.Generator().manual_seed(SEED)
    processing = Processing(PARAMS, [*IDS.tolist(), 2])
    counts, means, variances = (torch.zeros(BLOCK_OF_MANY, VOCAB, dtype=torch.float64) for _ in range(3))
    first_laws: dict[tuple[int, ...], Tensor] = {}
    for _ in range(DRAWS // BLOCK_OF_MANY):
        numbers = torch.rand(BLOCK_OF_MANY, dtype=torch.float64, generator=generator)
        proposal = session.propose(2, BLOCK_OF_MANY, processing, uniforms=numbers)
        probs = proposal.law.dense()
        counts += proposal_counts(proposal)
        means += probs
        variances += probs * (1 - probs)
        known = first_laws.setdefault(tuple(proposal.token_ids[:2].tolist()), probs[:3])
        assert torch.equal(probs[:3], known)  # the law depends on the drafts before it and on nothing else
    scores = (counts - means) / variances.sqrt()
    assert bool((counts[variances == 0] == means[variances == 0]).all())
    assert float(scores[variances > 0].abs().max()) < STANDARD_ERRORS, scores


def proposal_counts(proposal: Proposal) -> Float[Tensor, "horizon vocab"]:
    return torch.nn.functional.one_hot(proposal.token_ids, VOCAB).double()
