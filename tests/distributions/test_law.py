"""Laws: what they refuse, what they keep bit for bit, and what they draw."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from forerun.distributions import DenseLaw, Law, PointLaw, stack_laws
from forerun.distributions.law import running_sums
from forerun.errors import ForerunError
from tests.exactness.mutation import mutated
from tests.exactness.statistics import chi_square_p_value

LAST_BELOW_ONE = 1.0 - 2.0**-53


def rows(*probs: list[float], dtype: torch.dtype = torch.float64) -> DenseLaw:
    """A law with one row per argument."""
    return DenseLaw(torch.tensor(probs, dtype=dtype))


def uniforms(*values: float) -> torch.Tensor:
    """Float64 numbers."""
    return torch.tensor(values, dtype=torch.float64)


LAWS: dict[str, Law] = {
    "dense": rows([0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.125, 0.0, 0.875]),
    "point": PointLaw(torch.tensor([2, 0, 1]), 3),
    "dense-float32": rows([0.5, 0.25, 0.25], [0.1, 0.2, 0.7], [0.125, 0.0, 0.875], dtype=torch.float32),
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
class TestEveryLaw:
    """One set of demands for all kinds of law."""

    def test_dense_rows_are_the_answers_of_prob_of(self, law: Law) -> None:
        """A second representation that disagrees would test another law than the one sampled."""
        assert (len(law), law.vocab_size) == (3, 3)
        for token in range(3):
            assert torch.equal(law.prob_of(torch.full((3,), token)), law.dense()[:, token])
        assert law.dense().sum(-1).tolist() == pytest.approx([1.0] * 3, abs=1e-15)
        assert law.dense().dtype == torch.float64

    def test_rows_and_stacking_keep_every_bit(self, law: Law) -> None:
        """Normalising again could move the last bit between drawing and testing."""
        again = stack_laws([law.rows(0, 1), law.rows(1, 1), law.rows(1, 3)])
        assert type(again) is type(law)
        assert torch.equal(again.dense(), law.dense())
        assert len(law.rows(3, 3)) == 0

    @pytest.mark.parametrize(("start", "stop"), [(-1, 1), (2, 1), (0, 4), (4, 4)])
    def test_rows_beyond_the_end_are_an_error(self, law: Law, start: int, stop: int) -> None:
        """Slices that silently come out shorter would shift rows against tokens."""
        with pytest.raises(IndexError, match="of a law with 3 rows"):
            law.rows(start, stop)

    @pytest.mark.parametrize("value", [0.0, 5e-324, 0.5, LAST_BELOW_ONE])
    def test_zero_probability_is_never_drawn(self, law: Law, value: float) -> None:
        """At u = 0 a search for the first sum that reaches u would return a leading token of probability zero."""
        tokens = law.sample(uniforms=uniforms(value, value, value))
        assert tokens.dtype == torch.int64
        assert bool((law.prob_of(tokens) > 0.0).all())

    @pytest.mark.parametrize("bad", [[0.5], [0.5] * 4, [0.5, 0.5, 1.0], [0.5, -0.1, 0.5], [0.5, math.nan, 0.5]])
    def test_bad_uniforms_are_refused(self, law: Law, bad: list[float]) -> None:
        """1.0 would draw past the last token."""
        with pytest.raises(ForerunError, match="uniforms"):
            law.sample(uniforms=uniforms(*bad))

    def test_entropy_by_definition(self, law: Law) -> None:
        """In nats, with 0 log 0 = 0."""
        expected = [-sum(p * math.log(p) for p in row if p > 0.0) for row in law.dense().tolist()]
        assert law.entropy().tolist() == pytest.approx(expected, abs=1e-14)


def test_float32_uniforms_are_refused() -> None:
    """24 bits cannot draw tokens rarer than 6e-8; where runtime types are on, the type checker says so first."""
    with pytest.raises(Exception, match=r"float32|Float64"):
        LAWS["dense"].sample(uniforms=torch.zeros(3))


@pytest.mark.parametrize(
    "row",
    [[0.5, -0.1, 0.6], [0.5, math.nan, 0.5], [math.inf, 0.0, 0.0], [0.5, 0.2, 0.2], [2.0, -1.0, 3.0], [0.0, 0.0, 0.0]],
)
def test_what_is_no_law_is_refused_with_its_row(row: list[float]) -> None:
    """Logits handed over as probabilities must not be normalised into something plausible."""
    with pytest.raises(ForerunError, match=r"^row 1 is no probability law"):
        rows([0.5, 0.25, 0.25], row)


def test_point_law_refuses_foreign_ids() -> None:
    """Catches -1 used as padding and ids of a larger vocabulary."""
    for bad in (-1, 3):
        with pytest.raises(ForerunError, match="vocabulary of 3"):
            PointLaw(torch.tensor([0, bad]), 3)


def test_float32_rows_are_normalised_in_float64() -> None:
    """The probability tested must be the one drawn with: float32 rows miss 1 by up to 1e-7 per token."""
    raw = torch.softmax(torch.linspace(-3.0, 3.0, 4001)[None], -1)
    law = DenseLaw(raw)
    assert float(law.dense().sum()) == pytest.approx(1.0, abs=1e-14)
    assert law.dense()[0].tolist() == pytest.approx(raw[0].tolist(), rel=1e-5)


def test_dyadic_rows_keep_their_bits() -> None:
    """Exact enumeration relies on it."""
    probs = torch.tensor([[0.0625, 0.4375, 0.5]], dtype=torch.float64)
    assert torch.equal(DenseLaw(probs).dense(), probs)


def test_the_given_tensor_is_not_kept() -> None:
    """A drafter that reuses its buffer must not change a law it handed out."""
    probs = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    law = DenseLaw(probs)
    probs[0, 0] = 0.0
    assert law.dense().tolist() == [[0.5, 0.5]]


def test_stacking_different_kinds() -> None:
    """Point and dense laws make a dense law; nothing and mixed vocabularies are errors."""
    mixed = stack_laws([PointLaw(torch.tensor([1]), 3), rows([0.5, 0.25, 0.25])])
    assert mixed.dense().tolist() == [[0.0, 1.0, 0.0], [0.5, 0.25, 0.25]]
    with pytest.raises(ForerunError, match=r"vocabulary sizes \[2, 3\]"):
        stack_laws([PointLaw(torch.tensor([1]), 3), rows([0.5, 0.5])])
    with pytest.raises(ForerunError, match="at least one"):
        stack_laws([])


weights = st.lists(st.one_of(st.just(0.0), st.floats(1e-300, 1.0)), min_size=1, max_size=8).filter(any)


@given(row=weights, uniform=st.one_of(st.floats(0.0, 1.0, exclude_max=True), st.sampled_from([0.0, LAST_BELOW_ONE])))
def test_sample_inverts_the_cumulative_law(row: list[float], uniform: float) -> None:
    """The token drawn has mass, and ``u`` lies in its slice of [0, 1) up to rounding."""
    probs = [weight / math.fsum(row) for weight in row]
    law = rows(probs)
    token = int(law.sample(uniforms=uniforms(uniform)))
    assert probs[token] > 0.0
    assert math.fsum(probs[:token]) - 1e-14 <= uniform <= math.fsum(probs[: token + 1]) + 1e-14


def test_leading_zero_needs_the_strict_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation that the test of zero probability is for: searching with >= returns token 0 at u = 0."""
    law = rows([0.0, 1.0])
    monkeypatch.setattr(DenseLaw, "sample", mutated(DenseLaw.sample, "right=True", "right=False"))
    assert law.sample(uniforms=uniforms(0.0)).tolist() == [0]


ALPHA = 1e-4
DRAWS = 200_000


@pytest.mark.parametrize("seed", [101, 102, 103])
def test_sample_chi_square(seed: int) -> None:
    """Declared: 200 000 draws per seed, alpha 1e-4 each; a true law fails once in 3300 runs of new seeds."""
    probs = [0.4, 0.0, 0.3, 0.2, 0.05, 0.049, 0.001]
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.rand(DRAWS, dtype=torch.float64, generator=generator)
    law = DenseLaw(torch.tensor([probs], dtype=torch.float64).expand(DRAWS, -1))
    counts = torch.bincount(law.sample(uniforms=numbers), minlength=len(probs)).tolist()
    p_value = chi_square_p_value(counts, probs)
    assert p_value > ALPHA, (counts, p_value)
    skewed = [0.41, 0.0, 0.29, *probs[3:]]
    assert chi_square_p_value(counts, skewed) < ALPHA  # the test has the power to see one per cent


def test_a_parallel_scan_draws_nothing_of_probability_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """An accelerator's running sum may fall or rise by a rounding where nothing is added. Catches trust in it."""
    probs = torch.tensor([[0.0, 0.25, 0.0, 0.0, 0.5, 0.0, 0.25, 0.0]], dtype=torch.float64)
    exact = probs.cumsum(-1)
    jitter = torch.tensor([1e-16, 0.0, 2e-16, -2e-16, 1e-16, -1e-16, 1e-16, 3e-16], dtype=torch.float64)
    monkeypatch.setattr(torch.Tensor, "cumsum", lambda *_: exact + jitter)
    running = running_sums(probs, sequential=False)[0]
    assert bool((running.diff() >= 0.0).all())
    rising = torch.cat([running[:1], running.diff()]) > 0.0
    assert rising.tolist() == (probs[0] > 0.0).tolist()
    torch.testing.assert_close(running[None], exact, rtol=0, atol=1e-15)
