"""Chains drawn token by token: the request's processing at each place, and rows of logits that are no law."""

import math
from typing import final

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

from forerun.distributions import Processing, SamplingParams
from forerun.drafters import Drafter, DraftModel, DraftStop
from forerun.drafters.drawing import draw_chain, draw_rows
from forerun.engine import generate
from forerun.models import TableTarget, tiny_target
from forerun.verification import Proposal
from tests.support.networks import every_other, tiny_drafter
from tests.support.targets import fresh_greedy, random_table

VOCAB = 5
NUMBERS = torch.tensor([0.9, 0.2, 0.7, 0.4], dtype=torch.float64)


def broken_from(place: int, bad: float) -> Proposal:
    """Four tokens are asked for; the row of this place holds a bad number."""

    def next_logits(drafted: Int[Tensor, " drafted"]) -> Float[Tensor, "1 vocab"]:
        logits = torch.arange(VOCAB, dtype=torch.float64)[None] / 2
        logits[0, 3] = bad if len(drafted) == place else logits[0, 3]
        return logits

    processing = Processing(SamplingParams(), [1])
    return draw_chain(next_logits, 4, processing, vocab_size=VOCAB, uniforms=NUMBERS).read()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_broken_row_ends_the_draft_before_its_place(place: int, bad: float) -> None:
    """Catches token 0 (argmax of NaN) drafted with a law of NaN, and an exception that ends the request."""
    whole, cut = broken_from(4, bad), broken_from(place, bad)
    assert not whole.cut_short and whole.horizon == 4
    assert cut.cut_short and cut.token_ids.tolist() == whole.token_ids[:place].tolist()
    assert torch.equal(cut.law.dense(), whole.law.dense()[:place])
    assert cut.law.vocab_size == VOCAB


def test_each_place_is_processed_with_the_drafts_before_it() -> None:
    """Catches penalties of the prefix before the block: equal logits and a heavy penalty make every draft another."""
    processing = Processing(SamplingParams(temperature=0.0, presence_penalty=9.0), [4])
    processing.commit(4)
    proposal = draw_chain(lambda _: torch.zeros(1, VOCAB), 4, processing, vocab_size=VOCAB, uniforms=NUMBERS)
    assert proposal.token_ids.tolist() == [0, 1, 2, 3]


@final
class Watching(DraftStop):
    """Draws `most` tokens, hands over `submitted` of them, and remembers what it was shown."""

    def __init__(self, *, before: int = 9, after: int = 9, submitted: int | None = None) -> None:
        """The draft ends before this place, or after so many tokens."""
        self._before, self._after, self._submitted = before, after, submitted
        self.seen: list[tuple[list[float], float | None]] = []
        self.tokens: list[int] = []

    def before(self, logits: Float[Tensor, " vocab"], confidence: float | None) -> bool:
        """Not beyond the place given."""
        self.seen.append((logits.tolist(), confidence))
        return len(self.tokens) < self._before

    def after(self, token_id: int) -> bool:
        """Not beyond the number given."""
        self.tokens.append(token_id)
        return len(self.tokens) < self._after

    @property
    def submitted(self) -> int:
        """All, unless told otherwise."""
        return len(self.tokens) if self._submitted is None else self._submitted


def drawn_under(stop: DraftStop | None, horizon: int = 4) -> Proposal:
    """A row of logits that depends on the drafts so far."""
    rows = torch.randn(5, 1, VOCAB, generator=torch.Generator().manual_seed(3))
    confidences = iter([0.5, 1.5, 2.5, 3.5])
    return draw_chain(
        lambda drafted: rows[int(drafted.sum()) % 5], horizon, Processing(SamplingParams(), [1]), vocab_size=VOCAB,
        uniforms=NUMBERS, stop=stop, confidence=lambda: next(confidences),
    ).read()  # fmt: skip


@pytest.mark.parametrize(
    ("stop", "kept", "asked", "drawn"),
    [
        (Watching(), 4, 4, 4),
        (Watching(before=2), 2, 3, 2),
        (Watching(before=0), 0, 1, 0),
        (Watching(after=1), 1, 1, 1),
        (Watching(submitted=1), 1, 4, 4),
    ],
)
def test_a_stop_is_asked_before_and_after_every_draw(stop: Watching, kept: int, asked: int, drawn: int) -> None:
    """Catches a token dropped that was drawn, laws and tokens of different length, and questions out of order."""
    whole, cut = drawn_under(None), drawn_under(stop)
    assert cut.token_ids.tolist() == whole.token_ids.tolist()[:kept]
    assert not cut.cut_short and torch.equal(cut.law.dense(), whole.law.dense()[:kept])
    assert (len(stop.seen), stop.tokens) == (asked, whole.token_ids.tolist()[:drawn])
    assert [confidence for _, confidence in stop.seen] == [0.5, 1.5, 2.5, 3.5][:asked]
    for place, (logits, _) in enumerate(stop.seen[:kept]):  # the row of the place itself, unprocessed
        torch.testing.assert_close(torch.tensor(logits).double().softmax(-1), whole.law.dense()[place])


def sometimes_broken() -> Drafter:
    """A draft model whose logits break after token 2 and, wholly, after token 3."""
    good = random_table(1, vocab_size=VOCAB, order=1)

    def logits_of(prefix: tuple[int, ...]) -> Float[Tensor, " vocab"]:
        logits = good.forward(torch.tensor(prefix[-1:]), good.new_cache()).logits[0].clone()
        if prefix[-1] == 2:
            logits[0] = math.nan
        return logits * (math.nan if prefix[-1] == 3 else 1.0)

    return DraftModel(TableTarget(logits_of, vocab_size=VOCAB), good)


def test_a_draft_model_that_breaks_down_costs_speed_only() -> None:
    """Catches a cache that keeps the tokens of a draft that was cut, and NaN in an answer."""
    target = random_table(4, vocab_size=VOCAB, order=2)
    generation = generate(
        target,
        [1, 0],
        drafter=sometimes_broken(),
        horizon=3,
        sampling=SamplingParams(temperature=0.0),
        max_new_tokens=40,
    )
    assert generation.token_ids == fresh_greedy(target, [1, 0], 40)[2:]
    drafted = {record.drafted for record in generation.records[:-3]}
    assert 3 in drafted and drafted & {0, 1, 2}


def test_nothing_that_can_be_drafted_may_be_said() -> None:
    """A pruned draft vocabulary, all of it forbidden: no law, so no draft, and no error."""
    target = tiny_target(vocab_size=6)
    drafter = tiny_drafter(target, vocabulary=every_other(target))
    session = drafter.new_session()
    ids = torch.tensor([3, 1, 4])
    session.extend(ids, target.forward(ids, target.new_cache(), captured=drafter.captured_layers).features)
    words = [[token_id] for token_id in drafter.vocabulary.target_ids.tolist()]
    proposal = session.propose(2, 4, Processing(SamplingParams(bad_words=words), [3, 1, 4, 2]), uniforms=NUMBERS)
    assert proposal.cut_short and proposal.horizon == 0 and proposal.law.vocab_size == 6


@pytest.mark.parametrize("certain", [False, True])
@pytest.mark.parametrize("bad_row", [None, 0, 2])
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=0.0),
        SamplingParams(top_k=2),
        SamplingParams(temperature=0.7, top_p=0.8, min_p=0.05, typical_p=0.9, logit_bias={1: -1.0}),
    ],
)
def test_drawing_rows_at_once_is_drawing_the_chain(params: SamplingParams, bad_row: int | None, certain: bool) -> None:
    """Looking at every draft and looking at the end are one.

    Catches rows of another position, uniforms in another order, drafts behind a row that is no law, and a bad row that
    spoils its neighbours.
    """
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(4, 7, generator=generator)
    if bad_row is not None:
        logits[bad_row, 1] = torch.nan
    uniforms = torch.rand(4, dtype=torch.float64, generator=generator)
    processing = Processing(params, [1, 2])
    at_once = draw_rows(logits, processing, uniforms=uniforms, certain=certain).read()
    unseen, seen = (
        draw_chain(
            lambda drafted: logits[len(drafted)][None], 4, processing, vocab_size=7, uniforms=uniforms, certain=certain,
            stop=stop,
        ).read()
        for stop in (None, Watching())
    )  # fmt: skip
    assert at_once.token_ids.tolist() == unseen.token_ids.tolist() == seen.token_ids.tolist()
    assert at_once.cut_short == unseen.cut_short == seen.cut_short == (bad_row is not None)
    for proposal in (at_once, unseen):
        torch.testing.assert_close(proposal.law.dense(), seen.law.dense(), rtol=0, atol=1e-15)
