"""What a path selector sees of a batch: at each slot the tokens that decoding can draw, and the target's rows of them.

To every loss the list is a draft vocabulary of its own for that slot (`losses.candidate_rows` says what that means for
the target's mass outside): which tokens are listed is not differentiable, how they are scored is.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from forerun import losses
from forerun.drafters import DraftStates
from forerun.losses import Blocks
from forerun.training.blocks import BlockBatch
from forerun.training.teacher import Teacher

_CHUNK = 256


def candidate_blocks(
    states: DraftStates,
    weights: Sequence[Float[Tensor, "draft_vocab _"]],
    teacher: Teacher,
    batch: BlockBatch,
    *,
    inject: bool,
) -> Blocks:
    """A batch reduced to each slot's candidates, which are scored after the text's own token before.

    Args:
        states: of a network with ``candidates``.
        weights: its ``head_weights``.
        teacher: the target's side.
        batch: teacher-forced blocks.
        inject: a label that could be drafted but is not listed takes the place of the last candidate; decoding knows
            no label, so lists with injected ones are not the lists it draws from.

    Returns:
        Blocks whose vocabulary is the list; labels are places in it, `OUTSIDE` for tokens that are not listed.
    """
    assert states.candidates is not None
    labels = losses.draft_labels(batch.labels, teacher.vocabulary.target_ids)
    listed = best_tokens(states.terms[0].detach(), weights[0].detach(), states.candidates)
    if inject:
        missing = (labels >= 0) & (listed != labels[..., None]).all(-1)
        listed = torch.cat([listed[..., :-1], torch.where(missing, labels, listed[..., -1])[..., None]], dim=-1)
    scores = [_logits_at(term, weight, listed) for term, weight in zip(states.terms, weights, strict=True)]
    with torch.no_grad():
        target_log_probs = _logits_at(batch.final_hidden, teacher.head, listed) - batch.log_normaliser[..., None]
    found = listed == labels[..., None]
    return Blocks(
        target_log_probs=target_log_probs,
        draft_logits=sum(scores[1:], scores[0]),
        labels=torch.where(found.any(-1), found.int().argmax(-1), losses.OUTSIDE),
        mask=batch.valid,
    )


def best_tokens(
    states: Float[Tensor, "*batch width"], weight: Float[Tensor, "draft_vocab width"], count: int
) -> Int[Tensor, "*batch count"]:
    """Tokens with the largest logits, best first; logits of more than a chunk never exist."""
    chunks = states.flatten(0, -2).split(_CHUNK)
    best = torch.cat([losses.top_candidates(chunk @ weight.T, count) for chunk in chunks])
    return best.view(*states.shape[:-1], count)


def _logits_at(
    states: Float[Tensor, "*batch width"],
    weight: Float[Tensor, "draft_vocab width"],
    listed: Int[Tensor, "*batch count"],
) -> Float[Tensor, "*batch count"]:
    logits: Tensor = (weight[listed] @ states[..., None])[..., 0]
    return logits
