"""Training of mask-token drafters by self-distillation."""

from forerun.training.mask_token.loop import Distilled, Prefix, distill, validate_masks
from forerun.training.mask_token.spans import Spans

__all__ = ["Distilled", "Prefix", "Spans", "distill", "validate_masks"]
