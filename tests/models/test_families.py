"""Real transformers models of every family behind the adapter, float64, against transformers itself."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import pytest
import torch
from jaxtyping import Float, Float64
from torch import Tensor
from transformers import AutoModelForCausalLM, GenerationConfig

from forerun.distributions import Law, SamplingParams
from forerun.engine import generate
from forerun.models import TransformersTarget, load_target
from forerun.models.quiet import quiet_transformers
from forerun.verification import Outcome, Proposal, Rule, TokenLevel, Truncation
from tests.support.drafters import GuessingDrafter, wrong_at
from tests.support.families import FAMILIES, WINDOW, write_model
from tests.support.targets import fresh_greedy
from tests.support.tokenizers import VOCAB_SIZE

CLOSE = 1e-9
"""Float64 through three layers; sums in another order differ by 1e-15, a wrong key by far more than this."""
FLOAT32_SOFTMAX = {"gemma2": 1e-5}
"""transformers computes the attention weights of these families in float32, whatever the model's type."""
LENGTH = 5 * WINDOW
IDS = torch.arange(LENGTH) * 37 % (VOCAB_SIZE - 4) + 4


@dataclass(frozen=True)
class Case:
    """A loaded target, and the same model by transformers' own hands with what it says about ``IDS``."""

    close: float
    target: TransformersTarget
    reference: Any
    logits: Float[Tensor, "length vocab"]
    hidden_states: tuple[Float[Tensor, "length hidden"], ...]


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    family: str = request.param
    folder = write_model(tmp_path_factory.mktemp(family) / "model", FAMILIES[family]())
    return Case(FLOAT32_SOFTMAX.get(family, CLOSE), load_target(folder, dtype="float64"), *by_hand(folder))


def by_hand(folder: Path) -> tuple[Any, Tensor, tuple[Tensor, ...]]:
    """No cache, no chunks, no hooks."""
    with quiet_transformers():
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, experts_implementation="eager")
    with torch.no_grad():
        output = model(input_ids=IDS[None], use_cache=False, output_hidden_states=True)
    return model, output.logits[0], tuple(states[0] for states in output.hidden_states)


def test_chunks_with_roll_backs_equal_one_pass(case: Case) -> None:
    """Catches positions, masks and windows that count from the chunk, and roll backs that leave or lose a key."""
    target, cache = case.target, case.target.new_cache()
    rows, start = [], 0
    for size in (17, 1, 5, 2, 9, 6):
        rows.append(target.forward(IDS[start : start + size], cache).logits)
        start += size
        assert cache.length == start
        discarded = 1 + size % 5
        target.forward(IDS.flip(0)[:discarded], cache)
        assert cache.length == start + discarded
        cache.rollback(start + discarded // 2)
        cache.rollback(start)
    assert start == LENGTH
    torch.testing.assert_close(torch.cat(rows), case.logits, rtol=0, atol=case.close)


def test_rolling_back_far_and_going_on_elsewhere_is_exact(case: Case) -> None:
    """Catches windows that have dropped keys for good: three windows back, other tokens, then the old ones again."""
    target, cache = case.target, case.target.new_cache()
    target.forward(IDS, cache)
    cache.rollback(LENGTH - 3 * WINDOW)
    target.forward(IDS[:WINDOW], cache)
    cache.rollback(LENGTH - 3 * WINDOW)
    logits = target.forward(IDS[-3 * WINDOW :], cache, num_logits=WINDOW).logits
    torch.testing.assert_close(logits, case.logits[-WINDOW:], rtol=0, atol=case.close)


def test_captured_layers_are_outputs_of_zero_based_layers(case: Case) -> None:
    """Catches a layer number that is off by one, features after a norm, and rows of other tokens.

    Hidden state l + 1 of transformers is the output of 0-based layer l, but the last one has passed the norm.
    """
    target, cache = case.target, case.target.new_cache()
    last = target.num_layers - 1
    target.forward(IDS[:10], cache)
    step = target.forward(IDS[10:], cache, captured=(last, 0, 1), num_logits=2)
    assert step.features.shape == (LENGTH - 10, 3, target.hidden_size)
    assert step.logits.shape == (2, target.vocab_size)
    for place, layer in ((1, 0), (2, 1)):
        torch.testing.assert_close(
            step.features[:, place], case.hidden_states[layer + 1][10:], rtol=0, atol=case.close, msg=f"layer {layer}"
        )
    with torch.no_grad():
        normed = target.final_norm(step.features[:, 0])
    torch.testing.assert_close(normed, case.hidden_states[-1][10:], rtol=0, atol=case.close)


def test_nothing_is_captured_unless_asked(case: Case) -> None:
    """Catches hooks that stay behind and slow every later pass down."""
    step = case.target.forward(IDS[:3], case.target.new_cache())
    assert step.features.shape == (3, 0, case.target.hidden_size)
    assert not any(module._forward_hooks for module in case.target.model.modules())


def test_embedding_head_and_final_norm_are_the_models_own(case: Case) -> None:
    """Catches a norm inside a layer that is taken for the final one, and a tied head that is left random."""
    target, reference = case.target, case.reference
    assert torch.equal(target.embedding_weight, reference.get_input_embeddings().weight)
    assert torch.equal(target.head_weight, reference.get_output_embeddings().weight)
    assert torch.equal(target.head_weight, target.embedding_weight) == bool(reference.config.tie_word_embeddings)
    assert (target.vocab_size, target.hidden_size, target.num_layers) == (VOCAB_SIZE, 32, 3)
    assert (target.max_positions, target.stop_ids, target.dtype) == (128, (1,), torch.float64)


def test_some_rows_of_the_head_give_those_logits(case: Case) -> None:
    """Catches a head without its bias, scale or cap, rows in another order, and a view that narrows the whole model."""
    kept, target = torch.tensor([5, 0, 299, 37]), case.target
    narrow = target.with_head_rows(kept)
    assert (narrow.vocab_size, len(narrow.head_weight)) == (4, 4)
    found = narrow.forward(IDS, narrow.new_cache()).logits
    torch.testing.assert_close(found, case.logits[:, kept], rtol=0, atol=case.close)
    whole = target.forward(IDS[:4], target.new_cache()).logits
    torch.testing.assert_close(whole, case.logits[:4], rtol=0, atol=case.close)
    assert narrow.layers[0] is target.layers[0]


def test_teaching_gives_what_the_head_reads(case: Case) -> None:
    """Catches a final hidden state before the norm or of another row."""
    step = case.target.teach(IDS, captured=(1,))
    torch.testing.assert_close(step.logits, case.logits, rtol=0, atol=case.close)
    torch.testing.assert_close(step.features[:, 0], case.hidden_states[2], rtol=0, atol=case.close)
    torch.testing.assert_close(step.final_hidden, case.hidden_states[-1], rtol=0, atol=case.close)


def test_greedy_answers_are_those_of_transformers(case: Case) -> None:
    """Catches every difference to plain decoding, with a drafter that is wrong at every second place of its blocks."""
    prompt, count = IDS[:10], 3 * WINDOW
    with quiet_transformers():
        known = case.reference.generate(
            prompt[None],
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=count,
            do_sample=False,
        )[0].tolist()
    drafter = wrong_at([*known, *[0] * 9], lambda place: place % 2 == 0, vocab_size=VOCAB_SIZE)
    generation = generate(
        case.target,
        prompt.tolist(),
        drafter=drafter,
        horizon=3,
        sampling=SamplingParams(temperature=0.0),
        max_new_tokens=count,
    )
    assert generation.token_ids == known[len(prompt) :]


@final
class Overhearing(Rule):
    """Token-level verification that writes down the laws from which tokens came out."""

    name = "overhearing"
    exact = True
    needs_draft_law = True
    truncation = Truncation.BEFORE_DRAWING

    def __init__(self) -> None:
        """Has heard nothing."""
        self.laws: list[Float[Tensor, "emitted vocab"]] = []

    def verify(self, target: Law, proposal: Proposal, *, uniforms: Float64[Tensor, " horizon"]) -> Outcome:
        """Row j decided draft token j, and the row after the accepted ones the correction or bonus."""
        outcome = TokenLevel().verify(target, proposal, uniforms=uniforms)
        self.laws.append(target.dense()[: outcome.accepted + 1])
        return outcome


def test_sampled_answers_come_from_the_laws_of_transformers(case: Case) -> None:
    """Catches penalties that do not see the drafts before a row, another order of processing, and rows of other tokens.

    Every token of a sampled answer with drafts: the law it came from against transformers' own processors, as its
    ``generate`` builds them, on its own logits for the same text.
    """
    prompt, count = IDS[:10].tolist(), 3 * WINDOW
    guess = GuessingDrafter(
        lambda committed, horizon: fresh_greedy(case.target, committed, horizon)[len(committed) :],
        vocab_size=VOCAB_SIZE,
    )
    overheard = Overhearing()
    generation = generate(
        case.target,
        prompt,
        drafter=guess,
        horizon=2,
        sampling=SamplingParams(temperature=0.8, top_k=12, top_p=0.9, repetition_penalty=1.3),
        max_new_tokens=count,
        ignore_stop_ids=True,
        seed=6,
        rule=overheard,
    )
    ids = torch.tensor([*prompt, *generation.token_ids])
    laws = torch.cat(overheard.laws)[: count - 1]  # of all but the prefill's token; the last round may have gone on
    assert len(laws) >= count - 2  # a single token that is left at the end is not drafted, and no rule is asked
    assert 0 < generation.totals.accepted < generation.totals.drafted

    settings = GenerationConfig(do_sample=True, temperature=0.8, top_k=12, top_p=0.9, repetition_penalty=1.3)
    processors = case.reference._get_logits_processor(settings, input_ids_seq_length=len(prompt), device="cpu")
    assert len(processors) == 4
    with torch.no_grad():
        logits = case.reference(input_ids=ids[None], use_cache=False).logits[0]
    for length, law in enumerate(laws, start=len(prompt) + 1):
        expected = processors(ids[None, :length], logits[None, length - 1].clone())[0].softmax(-1)
        torch.testing.assert_close(law, expected, rtol=0, atol=case.close, msg=f"after {length} tokens")
        assert law[ids[length]] > 0
