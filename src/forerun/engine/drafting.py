"""Asking the drafter of a request for a round's draft."""

from __future__ import annotations

from typing import assert_never

from forerun.distributions import Processing, Purpose
from forerun.drafters import DrafterSession, DraftStop, TreeDrafter, TreeDrafterSession
from forerun.engine.draft import ChainDraft, Draft, TreeDraft, no_draft
from forerun.engine.request import Request
from forerun.errors import ForerunError
from forerun.horizons import Choice, num_nodes
from forerun.verification import Rule, TreeRule


def draft_for(
    request: Request,
    proposer: DrafterSession | TreeDrafterSession | None,
    choice: Choice,
    processing: Processing,
    *,
    last_token: int,
    position: int,
    stop: DraftStop | None,
) -> Draft:
    """What the drafter makes of the policy's choice.

    Args:
        request: whose round it is.
        proposer: of the request.
        choice: of the horizon policy.
        processing: of the request.
        last_token: the last committed one.
        position: absolute index of the first draft.
        stop: of the choice.

    Raises:
        ForerunError: the drafter drafted more than it was asked for.
    """
    horizon = choice.horizon
    if horizon == 0 or proposer is None:
        return no_draft(request.target.vocab_size)
    assert request.drafter is not None
    draft: Draft
    match proposer:
        case DrafterSession():
            assert isinstance(request.rule, Rule)
            size = request.block_size(horizon, position)
            uniforms = request.streams.uniforms(Purpose.DRAFT, position, size)
            proposal = proposer.propose(last_token, size, processing, uniforms=uniforms, stop=stop)
            draft = ChainDraft(proposal if size == horizon else proposal.first(horizon), request.rule)
        case TreeDrafterSession():
            assert isinstance(request.rule, TreeRule)
            assert isinstance(request.drafter, TreeDrafter)
            branching = choice.branching
            nodes = request.drafter.max_nodes(horizon) if branching is None else num_nodes(branching)
            uniforms = request.streams.uniforms(Purpose.DRAFT, position, nodes)
            tree = proposer.propose_tree(last_token, horizon, processing, uniforms=uniforms, branching=branching)
            draft = TreeDraft(tree, request.rule)
        case _:
            assert_never(proposer)
    if draft.depth > horizon:
        raise ForerunError(
            f"{request.drafter.name} drafted {draft.depth} tokens where {horizon} were asked for; "
            "return at most the horizon's number of tokens"
        )
    return draft
