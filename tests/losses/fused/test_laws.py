"""Where the target's law comes from: soft caps, biases, smaller vocabularies, stored normalisers, stored top tokens."""

import math
import warnings

import pytest
import torch
from torch import Tensor

from forerun import losses
from forerun.losses.fused import Divergence, InexactTarget, Projection, TargetStates, TopKTarget, fused_values
from tests.support.fused import DIVERGENCES, problem

IDS = torch.randperm(97, generator=torch.Generator().manual_seed(4))[:40]


def compare(target: TargetStates, law: Tensor, name: str = "everything") -> None:
    """Values and gradients with this source of the law against the eager loss on the law itself."""
    divergence, loss = DIVERGENCES[name]
    given = problem()
    vocab = law.shape[-1]
    labels = torch.where(given.labels < vocab, given.labels, losses.OUTSIDE)
    logits = given.hidden @ given.weight[:vocab].T
    exact = loss(labels, law, logits)
    draft = Projection(hidden=given.hidden, weight=given.weight[:vocab].detach())
    found = fused_values(draft, target, divergence, labels=labels, chunk=16).values
    torch.testing.assert_close(found, exact, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(found.sum(), given.hidden)[0],
        torch.autograd.grad(exact.sum(), given.hidden)[0],
        rtol=1e-9,
        atol=1e-12,
    )


def test_soft_cap_and_bias() -> None:
    """Catches a cap before the bias, and one that is left out; a cap of 2 changes every law a lot."""
    given = problem()
    bias = torch.linspace(-1, 1, 97, dtype=torch.float64)
    target = TargetStates(hidden=given.target_hidden, weight=given.target_weight, bias=bias, soft_cap=2.0)
    compare(target, (2 * torch.tanh((given.target_hidden @ given.target_weight.T + bias) / 2)).log_softmax(-1))


@pytest.mark.parametrize("name", ["tvp 0", "tvp 0.5", "tvp 1", "forward_kl", "lk_alpha", "everything"])
def test_draft_vocabulary(name: str) -> None:
    """Catches a law normalised inside the draft vocabulary, and a constant that is forgotten."""
    given = problem()
    target = TargetStates(hidden=given.target_hidden, weight=given.target_weight, draft_token_ids=IDS)
    compare(target, losses.draft_rows(given.target_log_probs, IDS), name)


def test_stored_normaliser() -> None:
    """What training stores: only the head's rows of the draft vocabulary are needed, and the law is the same."""
    given = problem()
    log_normaliser = (given.target_hidden @ given.target_weight.T).logsumexp(-1)
    target = TargetStates(hidden=given.target_hidden, weight=given.target_weight[IDS], log_normaliser=log_normaliser)
    compare(target, losses.draft_rows(given.target_log_probs, IDS))


def top(law: Tensor, k: int) -> TopKTarget:
    kept = law.topk(k)
    return TopKTarget(token_ids=kept.indices, log_probs=kept.values)


def top_values(law: Tensor, k: int, divergence: Divergence) -> tuple[Tensor, Tensor, Tensor]:
    """Values, acceptances and tail of the cut law."""
    given = problem()
    with pytest.warns(InexactTarget, match="upper bounds"):
        rows = fused_values(given.frozen().draft, top(law, k), divergence, chunk=16)
    return rows.values.detach(), rows.acceptances, rows.missing


def test_all_tokens_stored_is_exact() -> None:
    for name in ("tvp 0", "tvp 0.5", "tv + kl", "lk_alpha"):
        divergence, loss = DIVERGENCES[name]
        values, _, tail = top_values(problem().target_log_probs, 97, divergence)
        torch.testing.assert_close(values, problem().eager(loss).detach(), rtol=1e-11, atol=1e-12)
        assert tail.abs().max().item() == 0


@pytest.mark.parametrize("kept", [1, 5, 30])
def test_bounds_of_a_cut_law(kept: int) -> None:
    """The documented bounds, each from both sides: the cut loss is above the true one, by no more than is written."""
    given = problem()
    law, draft = given.target_log_probs, (given.hidden @ given.weight.T).softmax(-1).detach()
    inside = draft.gather(1, law.topk(kept).indices).sum(-1)
    slack = 1e-12
    logits = (given.hidden @ given.weight.T).detach()
    for beta in (0.0, 0.25, 0.5, 1.0):
        values, acceptances, tail = top_values(law, kept, Divergence(tvp=1.0, beta=beta))
        torch.testing.assert_close(tail, 1 - law.topk(kept).values.exp().sum(-1))
        lost = torch.minimum(tail, 1 - inside)
        ratio = ((1 - inside) / tail).clamp(max=1.0)
        phi = -ratio.log() if beta == 0 else (1 - ratio**beta) / beta
        at_zero = -losses.LOG_RATIO_FLOOR if beta == 0 else -math.expm1(beta * losses.LOG_RATIO_FLOOR) / beta
        gap = values - losses.tvp(law, logits, beta=beta)
        assert bool((gap >= -slack).all()) and bool((gap <= tail * (at_zero - phi) + slack).all())
        missed = losses.acceptance(law, logits) - acceptances
        assert bool((missed >= -slack).all()) and bool((missed <= lost + slack).all())
        assert missed.max().item() > 1e-3  # so that the bound says something
    values, acceptances, tail = top_values(law, kept, Divergence(lk_alpha=1.0))
    gap = values - losses.lk_alpha(law, logits)
    lost = torch.minimum(tail, 1 - inside)
    assert bool((gap >= -slack).all()) and bool((gap <= ((acceptances + lost) / acceptances).log() + slack).all())


def test_stored_tokens_outside_the_draft_vocabulary() -> None:
    """Catches a token outside that is read as token 0 and overwrites what token 0 has."""
    given = problem()
    draft = Projection(hidden=given.hidden[:1], weight=given.weight[:3])
    stored = torch.tensor([[-1, 0, 2, -1]]), torch.tensor([[0.4, 0.3, 0.2, 0.05]], dtype=torch.float64).log()
    law = torch.tensor([[0.3, 0.0, 0.2]], dtype=torch.float64).log()
    with pytest.warns(InexactTarget):
        found = fused_values(
            draft, TopKTarget(token_ids=stored[0], log_probs=stored[1]), Divergence(total_variation=1.0)
        )
    exact = losses.total_variation(law, given.hidden[:1] @ given.weight[:3].T)
    torch.testing.assert_close(found.values, exact)
    assert found.missing.item() == pytest.approx(0.5)


def test_one_warning_a_run() -> None:
    """Under Python's default filters a training loop warns once, not at every step; an exact law never warns."""
    given = problem().frozen()
    law = top(given.target_log_probs, 5)
    with warnings.catch_warnings(record=True) as seen:
        warnings.resetwarnings()
        warnings.simplefilter("default")
        for _ in range(3):
            fused_values(given.draft, law, Divergence(total_variation=1.0)).values.sum().backward()
            fused_values(given.draft, given.target, Divergence(total_variation=1.0))
    assert [warning.category for warning in seen] == [InexactTarget]
