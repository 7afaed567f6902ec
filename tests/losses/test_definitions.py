"""Every baseline against its published formula, written a second time: probabilities, loops, no log space, float64.

Values and gradients; autograd goes through the definition, so a hand-simplified gradient has nothing to agree with but
the formula.
"""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from forerun.errors import ForerunError
from forerun.losses import (
    OUTSIDE,
    argmax_cross_entropy,
    block_verification,
    candidate_rows,
    ce_l1,
    confidence_loss,
    d_pace,
    draft_opd,
    draft_rows,
    dspark,
    end_to_end_tv,
    first_error,
    forward_kl,
    jensen_shannon,
    left_to_right,
    lk_alpha,
    lk_lambda,
    masked_sum,
    reverse_kl,
    soft_cross_entropy,
    top_candidates,
    total_variation,
    tv_ce,
    tv_kl,
    tvp,
    until_first_error,
)

HORIZON = 4
CONFIDENCE = torch.tensor([0.3, -1.0, 2.0, 0.0], dtype=torch.float64)
ACCEPTED = torch.tensor([True, True, False, False])

Block = tuple[Tensor, Tensor, Tensor]  # labels (horizon,), target and draft probabilities (horizon, vocab)
Definition = Callable[[Tensor, Tensor, Tensor], list[Tensor]]


def block(seed: int, vocab: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """Labels, target log-probabilities and draft logits; the draft agrees with its labels more often than not."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(vocab, (HORIZON,), generator=generator)
    target, draft = torch.randn(2, HORIZON, vocab, generator=generator, dtype=torch.float64) * 1.5
    draft[torch.arange(HORIZON), labels] += 1.5
    return labels, target.log_softmax(-1), draft


def ce(labels: Tensor, draft: Tensor) -> list[Tensor]:
    return [-draft[k, labels[k]].log() for k in range(len(labels))]


def kl(first: Tensor, second: Tensor) -> list[Tensor]:
    return [(first[k] * (first[k] / second[k]).log()).sum() for k in range(len(first))]


def half_l1(target: Tensor, draft: Tensor) -> list[Tensor]:
    return [(target[k] - draft[k]).abs().sum() / 2 for k in range(len(target))]


def alpha(target: Tensor, draft: Tensor) -> list[Tensor]:
    return [torch.minimum(target[k], draft[k]).sum() for k in range(len(target))]


def mix(first_share: float, first: list[Tensor], second: list[Tensor]) -> list[Tensor]:
    return [first_share * a + (1 - first_share) * b for a, b in zip(first, second, strict=True)]


def define_lambda(target: Tensor, draft: Tensor, alphas: list[float]) -> list[Tensor]:
    shares = [math.exp(-3.0 * value) for value in alphas]
    pairs = zip(shares, kl(target, draft), half_l1(target, draft), strict=True)
    return [share * divergence + (1 - share) * distance for share, divergence, distance in pairs]


def define_bv(labels: Tensor, target: Tensor, draft: Tensor) -> list[Tensor]:
    values, product, smallest = [], torch.ones((), dtype=torch.float64), torch.ones((), dtype=torch.float64)
    for k, label in enumerate(labels):
        product = product * draft[k, label] / target[k, label]
        smallest = torch.minimum(smallest, product)
        values.append(1 - smallest)
    return values


def define_e2e(target: Tensor, draft: Tensor) -> list[Tensor]:
    accepted = alpha(target, draft)
    return [1 - torch.stack(accepted[: k + 1]).prod() for k in range(len(target))]


def define_d_pace(labels: Tensor, draft: Tensor) -> list[Tensor]:
    smoothed = [0.5 * float(draft[k, labels[k]].detach()) + 0.5 for k in range(len(labels))]
    weights = [sum(math.prod(smoothed[: k + 1]) for k in range(i, len(labels))) for i in range(len(labels))]
    return [weight * value for weight, value in zip(weights, ce(labels, draft), strict=True)]


def define_l2r(labels: Tensor, draft: Tensor) -> list[Tensor]:
    wrong = [k for k in range(len(labels)) if int(draft[k].argmax()) != int(labels[k])]
    values, chain = [], torch.ones((), dtype=torch.float64)
    for k, value in enumerate(ce(labels, draft)):
        chain = chain * draft[k, labels[k]]
        focal = 0.3 if wrong and k == wrong[0] else 0.0
        values.append((math.exp(-k / 10) + focal) * value + 40 * (1 - chain))
    return values


def define_opd(target: Tensor, draft: Tensor) -> list[Tensor]:
    forward, backward = kl(target, draft), kl(draft, target)
    return [forward[0] / 2, forward[1] / 2, backward[2] / 2, 0.8 * backward[3] / 2]


def define_js(target: Tensor, draft: Tensor) -> list[Tensor]:
    middle = (target + draft) / 2
    return mix(0.5, kl(target, middle), kl(draft, middle))


def define_dspark(labels: Tensor, target: Tensor, draft: Tensor) -> list[Tensor]:
    values = []
    for k, (likelihood, distance) in enumerate(zip(ce(labels, draft), half_l1(target, draft), strict=True)):
        label, confidence = 1 - float(distance.detach()), 1 / (1 + math.exp(-float(CONFIDENCE[k])))
        calibration = -label * math.log(confidence) - (1 - label) * math.log(1 - confidence)
        values.append(0.1 * likelihood + 0.9 * (target[k] - draft[k]).abs().sum() + calibration)
    return values


CASES: dict[str, tuple[Callable[[Tensor, Tensor, Tensor], Tensor], Definition]] = {
    "argmax CE": (lambda y, p, z: argmax_cross_entropy(p, z), lambda y, p, q: ce(p.argmax(-1), q)),
    "soft CE": (
        lambda y, p, z: soft_cross_entropy(p, z),
        lambda y, p, q: [-(p[k] * q[k].log()).sum() for k in range(HORIZON)],
    ),
    "KL": (lambda y, p, z: forward_kl(p, z), lambda y, p, q: kl(p, q)),
    "reverse KL": (lambda y, p, z: reverse_kl(p, z), lambda y, p, q: kl(q, p)),
    "JS": (lambda y, p, z: jensen_shannon(p, z), lambda y, p, q: define_js(p, q)),
    "TV": (lambda y, p, z: total_variation(p, z), lambda y, p, q: half_l1(p, q)),
    "TV+KL": (lambda y, p, z: tv_kl(p, z), lambda y, p, q: mix(0.9, half_l1(p, q), kl(p, q))),
    "TV+CE": (lambda y, p, z: tv_ce(y, p, z), lambda y, p, q: mix(0.9, half_l1(p, q), ce(y, q))),
    "CE+L1": (
        lambda y, p, z: ce_l1(y, p, z),
        lambda y, p, q: [0.1 * a + 1.8 * b for a, b in zip(ce(y, q), half_l1(p, q), strict=True)],
    ),
    "DSpark": (lambda y, p, z: dspark(y, p, z, CONFIDENCE), define_dspark),
    "LK-alpha": (lambda y, p, z: lk_alpha(p, z), lambda y, p, q: [-value.log() for value in alpha(p, q)]),
    "LK-lambda by position": (
        lambda y, p, z: lk_lambda(p, z, acceptances=torch.tensor([0.9, 0.5, 0.25, 0.0], dtype=torch.float64)),
        lambda y, p, q: define_lambda(p, q, [0.9, 0.5, 0.25, 0.0]),
    ),
    "LK-lambda by token": (
        lambda y, p, z: lk_lambda(p, z),
        lambda y, p, q: define_lambda(p, q, [float(value.detach()) for value in alpha(p, q)]),
    ),
    "BV": (lambda y, p, z: block_verification(y, p, z), define_bv),
    "end-to-end TV": (lambda y, p, z: end_to_end_tv(p, z), lambda y, p, q: define_e2e(p, q)),
    "D-PACE": (lambda y, p, z: d_pace(y, z), lambda y, p, q: define_d_pace(y, q)),
    "L2R": (lambda y, p, z: left_to_right(y, z), lambda y, p, q: define_l2r(y, q)),
    "Draft-OPD": (lambda y, p, z: draft_opd(p, z, ACCEPTED), lambda y, p, q: define_opd(p, q)),
}


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_are_those_of_the_definition(name: str) -> None:
    """Catches a swapped direction, a factor of two, a lost detach, a prefix that is one too long or too short."""
    loss, definition = CASES[name]
    for seed in range(4):
        labels, target_log_probs, logits = block(seed)
        upstream = torch.rand(HORIZON, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        logits.requires_grad_()
        values = loss(labels, target_log_probs, logits)
        expected = torch.stack(definition(labels, target_log_probs.exp(), logits.softmax(-1)))
        torch.testing.assert_close(values, expected, rtol=1e-11, atol=1e-13)
        (gradient,) = torch.autograd.grad(values, logits, upstream)
        (oracle,) = torch.autograd.grad(expected, logits, upstream)
        torch.testing.assert_close(gradient, oracle, rtol=1e-10, atol=1e-13)


def gradient_of(loss: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    leaf = logits.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf).sum(), leaf)
    return gradient


def test_published_gradients() -> None:
    """Gradient forms of the LK paper: half draft (sign - mean sign) for TV, that over alpha, and reverse KL's."""
    _, target_log_probs, logits = block(3)
    target, draft = target_log_probs.exp(), logits.softmax(-1)
    sign = (draft - target).sign()
    distance = draft / 2 * (sign - (draft * sign).sum(-1, keepdim=True))
    torch.testing.assert_close(gradient_of(lambda z: total_variation(target_log_probs, z), logits), distance)
    accepted = torch.minimum(target, draft).sum(-1, keepdim=True)
    torch.testing.assert_close(gradient_of(lambda z: lk_alpha(target_log_probs, z), logits), distance / accepted)
    ratio = (draft / target).log()
    reverse = draft * (ratio - (draft * ratio).sum(-1, keepdim=True))
    torch.testing.assert_close(gradient_of(lambda z: reverse_kl(target_log_probs, z), logits), reverse)


def test_lk_alpha_of_a_certain_target_is_its_cross_entropy() -> None:
    labels, _, logits = block(1)
    certain = torch.full_like(logits, -math.inf).scatter(-1, labels[:, None], 0.0)
    torch.testing.assert_close(lk_alpha(certain, logits), -logits.log_softmax(-1).gather(-1, labels[:, None])[:, 0])


@pytest.mark.parametrize("vocab", [49_152, 151_936])
def test_a_cold_start_has_a_gradient(vocab: int) -> None:
    """A uniform draft, a certain target: what pulls its token up is 1 - 1/V for likelihoods, 1/V for plain TV.

    Catches an epsilon inside a logarithm: -log(alpha + 1e-6) would lose a seventh of it at 152k, 1e-5 most of it.
    """
    certain = torch.full((vocab,), -math.inf)
    certain[17] = 0.0
    pulls = {
        "LK-alpha": gradient_of(lambda z: lk_alpha(certain, z), torch.zeros(vocab))[17].item(),
        "LK-lambda": gradient_of(lambda z: lk_lambda(certain, z), torch.zeros(vocab))[17].item(),
        "D_0": gradient_of(lambda z: tvp(certain, z, beta=0.0), torch.zeros(vocab))[17].item(),
        "KL": gradient_of(lambda z: forward_kl(certain, z), torch.zeros(vocab))[17].item(),
        "TV+KL": gradient_of(lambda z: tv_kl(certain, z), torch.zeros(vocab))[17].item() / 0.1,
        "TV": gradient_of(lambda z: total_variation(certain, z), torch.zeros(vocab))[17].item() * vocab,
    }
    assert pulls == pytest.approx(dict.fromkeys(pulls, -1.0), rel=2e-4)
    assert lk_alpha(certain, torch.zeros(vocab)).item() == pytest.approx(math.log(vocab), rel=1e-6)


def test_cold_start_norms_of_the_lk_paper() -> None:
    """Target uniform on k of V tokens, uniform draft: KL's gradient norm is O(1/sqrt k), TV's is sqrt(k)/V."""
    vocab, k = 50_000, 100
    target = torch.full((vocab,), -math.inf, dtype=torch.float64)
    target[:k] = -math.log(k)
    start = torch.zeros(vocab, dtype=torch.float64)
    assert gradient_of(lambda z: forward_kl(target, z), start).norm().item() == pytest.approx(k**-0.5, rel=2e-3)
    assert gradient_of(lambda z: total_variation(target, z), start).norm().item() == pytest.approx(
        k**0.5 / vocab, rel=2e-3
    )


def test_lambda_steers_by_the_batch_not_by_the_token() -> None:
    """The paper's lambda is one for a draft position; catches the per-token variant under its name, and a lost eta."""
    _, target, logits = block(2)
    whole = lk_lambda(target, logits, acceptances=torch.full((HORIZON,), 0.5, dtype=torch.float64))
    share = math.exp(-1.5)
    torch.testing.assert_close(
        whole, share * forward_kl(target, logits) + (1 - share) * total_variation(target, logits)
    )
    assert not torch.allclose(whole, lk_lambda(target, logits))
    steering = torch.full((HORIZON,), 0.5, dtype=torch.float64, requires_grad=True)
    assert not lk_lambda(target, logits, acceptances=steering).requires_grad  # a weight, not a path for gradients
    pure = lk_lambda(target, logits, eta=0.0)
    torch.testing.assert_close(pure, forward_kl(target, logits))


def test_confidence_is_trained_by_a_label_and_does_not_train_it() -> None:
    label = torch.tensor([0.25, 0.75], dtype=torch.float64, requires_grad=True)
    logit = torch.tensor([0.25, 0.75], dtype=torch.float64).logit().requires_grad_()
    loss = confidence_loss(logit, label)
    assert loss.tolist() == pytest.approx([-(0.25 * math.log(0.25) + 0.75 * math.log(0.75))] * 2)
    assert torch.autograd.grad(loss.sum(), logit)[0].tolist() == pytest.approx([0.0, 0.0], abs=1e-15)
    assert not confidence_loss(logit.detach(), label).requires_grad


LABELS = torch.tensor([[0, 1, 2, 0], [0, 1, 1, 0], [1, 1, 1, 1], [0, 1, OUTSIDE, 0]])
BEST = torch.tensor([[0, 1, 2, 0], [0, 2, 1, 1], [0, 0, 0, 0], [0, 1, 2, 0]])


def logits_that_like(best: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(best, 3).double()


def test_first_error_and_kept_set() -> None:
    """Spec-AUF keeps j* itself. Catches an error that is dropped, a second one that is kept, blocks lost."""
    draft = logits_that_like(BEST)
    assert first_error(LABELS, draft).nonzero().tolist() == [[1, 1], [2, 0], [3, 2]]
    assert until_first_error(LABELS, draft).sum(-1).tolist() == [4, 2, 1, 3]
    mask = torch.tensor([[True, True, False, False]] * 4)
    assert until_first_error(LABELS, draft, mask).sum(-1).tolist() == [2, 2, 1, 2]
    assert first_error(LABELS, draft, mask).any(-1).tolist() == [False, True, True, False]


def test_masked_hole_is_not_an_error() -> None:
    mask = torch.tensor([[True, False, True, True]])
    draft = logits_that_like(torch.tensor([[0, 2, 2, 1]]))
    assert until_first_error(torch.tensor([[0, 1, 2, 0]]), draft, mask).tolist() == [[True, False, True, True]]
    assert first_error(torch.tensor([[0, 1, 2, 0]]), draft, mask).tolist() == [[False, False, False, True]]


def test_d_pace_smooths_over_what_cannot_be_drafted() -> None:
    """A data token outside the draft vocabulary halves the survival, like the certain miss that it is."""
    labels = torch.tensor([OUTSIDE, 1])
    draft = torch.tensor([[0.0, 0.0], [-math.inf, 0.0]], dtype=torch.float64)
    assert d_pace(labels, draft).tolist() == [0.0, 0.0]
    weight = d_pace(torch.tensor([0, 1]), draft)[0].item() / math.log(2)  # survivals 0.75 and 0.75
    assert weight == pytest.approx(1.5)


@pytest.mark.parametrize("kept", [1, 3, 5])
def test_mass_outside_a_pruned_vocabulary(kept: int) -> None:
    """What each docstring says the mass outside contributes, against the full vocabulary with -inf outside."""
    labels, target, logits = block(5)
    ids = torch.arange(kept)
    excluded = torch.full_like(logits, -math.inf)
    excluded[:, :kept] = logits[:, :kept]
    rows, small = draft_rows(target, ids), logits[:, :kept]
    for loss in (total_variation, jensen_shannon, lk_alpha, end_to_end_tv):  # defined on the full vocabulary
        torch.testing.assert_close(loss(rows, small), loss(target, excluded))
        torch.testing.assert_close(
            gradient_of(partial(loss, rows), small),
            gradient_of(partial(loss, target), excluded)[:, :kept],
        )
    inside = rows.logsumexp(-1, keepdim=True)
    for loss in (forward_kl, soft_cross_entropy):  # infinite outside: renormalised
        torch.testing.assert_close(loss(rows, small), loss(rows - inside, small))
    torch.testing.assert_close(reverse_kl(rows, small), reverse_kl(rows - inside, small) - inside[:, 0])
    inner = torch.where(labels < kept, labels, OUTSIDE)
    torch.testing.assert_close(block_verification(inner, rows, small), block_verification(labels, target, excluded))


def test_top_candidates_restrict_both_laws() -> None:
    """The list is a draft vocabulary of its own: what the target has elsewhere is rejected and pulls at nothing."""
    _, target, logits = block(7, vocab=40)
    ids = top_candidates(logits, 16)
    assert ids.tolist() == logits.argsort(-1, descending=True)[:, :16].tolist()
    excluded = torch.full_like(logits, -math.inf).scatter(-1, ids, logits.gather(-1, ids))

    def restricted(draft: Tensor, beta: float) -> Tensor:
        return tvp(candidate_rows(target, ids), candidate_rows(draft, ids), beta=beta)

    for beta in (0.0, 0.5, 1.0):
        torch.testing.assert_close(restricted(logits, beta), tvp(target, excluded, beta=beta))
        gradient = gradient_of(partial(restricted, beta=beta), logits)
        assert gradient.scatter(-1, ids, 0.0).abs().max().item() == 0
        torch.testing.assert_close(gradient, gradient_of(partial(tvp, target, beta=beta), excluded))


def test_means_of_whole_blocks_are_the_published_losses() -> None:
    """One count for all: mean over positions = Bebop's 1 - 1/K sum prod, BV's 1 - EAL/K, D-PACE's block mean over K."""
    blocks = [block(seed) for seed in range(3)]
    labels, target, logits = (torch.stack(parts) for parts in zip(*blocks, strict=True))
    mask = torch.ones(3, HORIZON, dtype=torch.bool)
    published = [1 - sum(math.prod(float(a) for a in alpha(p.exp(), z.softmax(-1))[: k + 1]) for k in range(4)) / 4
                 for _, p, z in blocks]  # fmt: skip
    assert masked_sum(end_to_end_tv(target, logits, mask), mask).mean().item() == pytest.approx(sum(published) / 3)
    paced = [sum(float(v) for v in define_d_pace(y, z.softmax(-1))) for y, _, z in blocks]
    assert masked_sum(d_pace(labels, logits, mask), mask).mean().item() == pytest.approx(sum(paced) / 3 / HORIZON)


def test_settings_out_of_range_are_named() -> None:
    labels, target, logits = block(0)
    for share in (-0.1, 1.0, math.nan):
        with pytest.raises(ForerunError, match="tv_share is"):
            tv_kl(target, logits, tv_share=share)
        with pytest.raises(ForerunError, match="tv_share is"):
            tv_ce(labels, target, logits, tv_share=share)
    with pytest.raises(ForerunError, match="eta is -1"):
        lk_lambda(target, logits, eta=-1.0)
    with pytest.raises(ForerunError, match=r"smoothing is 1\.5"):
        d_pace(labels, logits, smoothing=1.5)
    with pytest.raises(ForerunError, match="gamma is 0"):
        left_to_right(labels, logits, gamma=0.0)
    with pytest.raises(ForerunError, match="decay is 0"):
        draft_opd(target, logits, ACCEPTED, decay=0.0)
    with pytest.raises(ForerunError, match="one above 0"):
        draft_opd(target, logits, ACCEPTED, accepted_weight=0.0, rejected_weight=0.0)
    with pytest.raises(ForerunError, match="count is 7"):
        top_candidates(logits, 7)


@pytest.mark.usefixtures("unchecked_shapes")
def test_shapes_that_do_not_belong_together_are_named() -> None:
    _, target, logits = block(0)
    with pytest.raises(ForerunError, match="do not broadcast"):
        lk_lambda(target, logits, acceptances=torch.ones(3))
    with pytest.raises(ForerunError, match="does not match the positions"):
        draft_opd(target, logits, ACCEPTED[:2])
    with pytest.raises(ForerunError, match="differ in shape"):
        confidence_loss(CONFIDENCE, CONFIDENCE[:2])
    with pytest.raises(ForerunError, match="are no block"):
        end_to_end_tv(target[0], logits[0])
