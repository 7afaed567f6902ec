"""Mask-token multi-token prediction: a model drafts in the places of mask tokens, alone or inside verification."""

from forerun.drafters.mask_token.drafter import MaskTokenModel
from forerun.drafters.mask_token.riding import MaskTokenRiders

__all__ = ["MaskTokenModel", "MaskTokenRiders"]
