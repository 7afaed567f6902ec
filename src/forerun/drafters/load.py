"""From a folder to a drafter of whichever kind it holds."""

from __future__ import annotations

import os
from pathlib import Path

from forerun.drafters.checkpoint import load_network_drafter, read_config
from forerun.drafters.drafter import Drafter
from forerun.drafters.mask_token.checkpoint import load_mask_token
from forerun.drafters.mask_token.config import MaskTokenConfig
from forerun.drafters.network_drafter import ProposalPolicy
from forerun.models import TransformersTarget


def load_drafter(
    path: str | os.PathLike[str],
    target: TransformersTarget,
    *,
    policy: ProposalPolicy = ProposalPolicy.SAMPLE,
    optimize: bool = True,
) -> Drafter:
    """Load a trained drafter for ``target``.

    Args:
        path: folder that ``forerun train`` wrote.
        target: the model to draft for; tokenizer, shapes and golden values are checked against it.
        policy: how drafts come out of their laws.
        optimize: lay linear weights out for narrow passes where the machine allows it.

    Raises:
        ForerunError: one line that names the missing folder, file, field or tensor, the first differing token id, or
            the mismatch.
    """
    folder = Path(path)
    if isinstance(read_config(folder), MaskTokenConfig):
        return load_mask_token(folder, target, policy=policy, optimize=optimize)
    return load_network_drafter(folder, target, policy=policy, optimize=optimize)
