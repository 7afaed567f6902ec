"""Mask tokens with random weights, for tests that need no trained ones."""

import torch

from forerun.models import MaskAdapter, TransformersTarget, find_sites


def random_adapter(
    target: TransformersTarget, *, names: tuple[str, ...] = (), rank: int = 2, scale: float = 0.3, seed: int = 5
) -> MaskAdapter:
    """Every weight is drawn, the updates too, so that nothing of it can go missing unseen."""
    sites = find_sites(target.layers, names, target.smallest_pass)
    adapter = MaskAdapter(target.hidden_size, sites, rank=rank, alpha=2.0 * rank)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in adapter.parameters():
            parameter.normal_(std=scale, generator=generator)
    return adapter.to(target.dtype).requires_grad_(False)


def add_mask(target: TransformersTarget, *, seed: int = 5) -> int:
    """Give the target a random mask token; its id."""
    return target.extra_tokens.add(random_adapter(target, seed=seed))
