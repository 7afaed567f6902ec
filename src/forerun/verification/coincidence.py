"""How probable it is that the target's own choice is among the candidates."""

from forerun.distributions import Law
from forerun.verification.candidates import Candidates
from forerun.verification.descent import Siblings
from forerun.verification.exclusion import excluding


def probabilities_of_first(target: Law, siblings: Siblings) -> list[float]:
    """Probability of each sibling's token under a one-row law, 0 where an elder sibling has the same token."""
    token_ids = siblings.token_ids.tolist()
    return [
        0.0 if token_id in token_ids[:place] else float(target.prob_of(siblings.token_ids[place : place + 1]))
        for place, token_id in enumerate(token_ids)
    ]


def coincidence(target: Law, siblings: Siblings, candidates: Candidates) -> tuple[float, float]:
    """Probability that a token drawn from the target is one of the siblings, and its mean over the last one's draw.

    ``sum over siblings of target(x)``; on average over the last one, ``target(elders) + sum over other tokens v of
    target(v) * left(v)``, where ``left`` is the law the last one was drawn from.

    Args:
        target: One row.
        siblings: At least one.
        candidates: How they were chosen; deterministic ones have nothing to average over.
    """
    probs = probabilities_of_first(target, siblings)
    given = min(sum(probs), 1.0)
    if siblings.law is None:
        return given, given
    elders = siblings.token_ids[:-1].to(target.device)
    left = excluding(siblings.law, elders) if candidates is Candidates.WITHOUT_REPLACEMENT else siblings.law
    others = target.dense().index_fill(-1, elders, 0.0)
    return given, min(sum(probs[:-1]) + float((others * left.dense().to(others.device)).sum()), 1.0)
