"""Drawing a chain of drafts token by token; knows nothing of where a row of logits comes from.

Where nothing looks at the drafts while they are drawn (no penalty, no stop), all of them are drawn on the device, and
the target can read them there: the host waits for the device once a round, for the target's answer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from forerun.distributions import Law, PointLaw, Processing, UnusableLogits, stack_laws
from forerun.drafters.stop import DraftStop
from forerun.verification import Proposal

NextLogits = Callable[[Int[Tensor, " drafted"]], Float[Tensor, "1 vocab"] | None]
"""From the drafts so far to the logits of the next, or ``None`` to end the draft before it.

Called once for each position, in order; the drafts are on the host or where the logits are.
"""


def draw_chain(
    next_logits: NextLogits,
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
        next_logits: see :data:`NextLogits`.
        horizon: most tokens.
        processing: of the request.
        vocab_size: of the target.
        uniforms: one in [0, 1) for each position.
        certain: take each law's most probable token (the lowest of equals) instead of drawing; the proposal's law then
            has that token alone.
        stop: asked before and after every draw; see ``DrafterSession.propose``.
        confidence: log-odds that the draft of the position asked for last is accepted; asked only if there is a stop.
    """
    if stop is None and processing.same_everywhere:
        return _draw_unseen(next_logits, horizon, processing, vocab_size=vocab_size, uniforms=uniforms, certain=certain)
    drafted: list[int] = []
    laws: list[Law] = []
    cut_short = False
    for place in range(horizon):
        logits = next_logits(torch.tensor(drafted, dtype=torch.int64))
        if logits is None:
            break
        try:
            law = processing.law_after(logits, drafted)
        except UnusableLogits:
            cut_short = True
            break
        if stop is not None and not stop.before(logits[0], None if confidence is None else confidence()):
            break
        law = law.most_probable() if certain else law
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
    law, usable = processing.law_without_waiting(logits)
    law = law.most_probable() if certain else law
    return Proposal.drawn(law.sample(uniforms=uniforms[:rows]), law, usable)


def _draw_unseen(
    next_logits: NextLogits,
    horizon: int,
    processing: Processing,
    *,
    vocab_size: int,
    uniforms: Float[Tensor, " horizon"],
    certain: bool,
) -> Proposal:
    """``draw_chain`` without looking: drafts behind a row that is no law are drawn too, and dropped when it is read."""
    drafted = torch.empty(0, dtype=torch.int64)
    laws: list[Law] = []
    usable: list[Tensor] = []
    for place in range(horizon):
        logits = next_logits(drafted)
        if logits is None:
            break
        law, is_law = processing.law_without_waiting(logits)
        law = law.most_probable() if certain else law
        drawn = law.sample(uniforms=uniforms[place : place + 1])
        laws.append(law)
        usable.append(is_law)
        drafted = torch.cat([drafted.to(drawn.device), drawn])
    if not laws:
        return Proposal(token_ids=drafted, law=PointLaw(drafted, vocab_size))
    return Proposal.drawn(drafted, stack_laws(laws), torch.cat(usable))
