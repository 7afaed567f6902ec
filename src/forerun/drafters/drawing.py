"""Drawing a chain of drafts token by token; knows nothing of where a row of logits comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from forerun.distributions import Law, PointLaw, Processing, UnusableLogits, stack_laws
from forerun.drafters.stop import DraftStop
from forerun.verification import Proposal


def draw_chain(
    next_logits: Callable[[Sequence[int]], Float[Tensor, "1 vocab"] | None],
    horizon: int,
    processing: Processing,
    *,
    vocab_size: int,
    uniforms: Float[Tensor, " horizon"],
    certain: bool = False,
    stop: DraftStop | None = None,
    confidence: Callable[[], float | None] | None = None,
) -> Proposal:
    """Draw each draft from the processed law after the drafts before it.

    A row of logits that is no law (NaN, or nothing that may be said) ends the draft before its position. That is
    legal, for the row was made before the token that it would have drawn.

    Args:
        next_logits: from the drafts so far to the logits of the next, or ``None`` to end the draft before it; called
            once for each position, in order.
        horizon: most tokens.
        processing: of the request.
        vocab_size: of the target.
        uniforms: one in [0, 1) for each position.
        certain: take each law's most probable token (the lowest of equals) instead of drawing; the proposal's law then
            has that token alone.
        stop: asked before and after every draw; see ``DrafterSession.propose``.
        confidence: log-odds that the draft of the position asked for last is accepted; asked only if there is a stop.
    """
    drafted: list[int] = []
    laws: list[Law] = []
    cut_short = False
    for place in range(horizon):
        logits = next_logits(drafted)
        if logits is None:
            break
        try:
            law = processing.law_after(logits, drafted)
        except UnusableLogits:
            cut_short = True
            break
        if stop is not None and not stop.before(logits[0], None if confidence is None else confidence()):
            break
        if certain:
            law = most_probable(law)
        laws.append(law)
        drafted.append(int(law.sample(uniforms=uniforms[place : place + 1])))
        if stop is not None and not stop.after(drafted[-1]):
            break
    if stop is not None:
        drafted, laws = drafted[: stop.submitted], laws[: stop.submitted]
    token_ids = torch.tensor(drafted, dtype=torch.int64)
    law = stack_laws(laws) if laws else PointLaw(token_ids, vocab_size)
    return Proposal(token_ids=token_ids, law=law, cut_short=cut_short)


def draw_rows(
    logits: Float[Tensor, "horizon vocab"],
    processing: Processing,
    *,
    uniforms: Float[Tensor, " horizon"],
    certain: bool = False,
    stop: DraftStop | None = None,
) -> Proposal:
    """The proposal of ``draw_chain`` from logits that no draft can change.

    All at once, with one pass over the logits, unless the processing looks at the drafts (penalties do) or a stop may
    end them on the way.

    Args:
        logits: of all positions; they must not depend on the drafts.
        processing: of the request.
        uniforms: one in [0, 1) for each position.
        certain: as in ``draw_chain``.
        stop: likewise.
    """
    rows, vocab_size = logits.shape
    if stop is not None or not processing.same_everywhere:
        return draw_chain(
            lambda drafted: logits[len(drafted) : len(drafted) + 1],
            rows,
            processing,
            vocab_size=vocab_size,
            uniforms=uniforms,
            certain=certain,
            stop=stop,
        )
    try:
        law = processing.law_of_paths(logits, [()] * rows)
    except UnusableLogits as error:
        if error.row == 0:
            nothing = torch.empty(0, dtype=torch.int64)
            return Proposal(token_ids=nothing, law=PointLaw(nothing, vocab_size), cut_short=True)
        rows = error.row
        law = processing.law_of_paths(logits[:rows], [()] * rows)
    if certain:
        law = most_probable(law)
    token_ids = law.sample(uniforms=uniforms[:rows]).cpu()
    return Proposal(token_ids=token_ids, law=law, cut_short=rows < len(logits))


def most_probable(law: Law) -> Law:
    """The most probable token of each row as a certain one; the lowest of equals."""
    return law if isinstance(law, PointLaw) else PointLaw(law.dense().argmax(-1), law.vocab_size)
