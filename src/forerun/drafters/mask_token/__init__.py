"""Mask-token multi-token prediction: a model drafts in the places of mask tokens, alone or inside verification."""

from forerun.drafters.mask_token.config import MaskTokenConfig
from forerun.drafters.mask_token.drafter import MaskTokenModel
from forerun.drafters.mask_token.riding import MaskTokenRiders
from forerun.drafters.mask_token.student import MaskTokenStudent

__all__ = ["MaskTokenConfig", "MaskTokenModel", "MaskTokenRiders", "MaskTokenStudent"]
