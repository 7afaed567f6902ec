"""What a checkpoint can hold, by the word in its configuration."""

from __future__ import annotations

from forerun.drafters.config import DrafterConfig
from forerun.drafters.dflash import DFlashConfig, DFlashNetwork
from forerun.drafters.dflash2 import DFlash2Config, DFlash2Network
from forerun.drafters.dspark import DSparkConfig, DSparkNetwork
from forerun.drafters.eagle3 import Eagle3Config, Eagle3Network
from forerun.drafters.mask_token.config import MaskTokenConfig
from forerun.drafters.medusa import MedusaConfig, MedusaNetwork
from forerun.drafters.network import DraftNetwork
from forerun.drafters.parallel_heads import ParallelHeadsConfig, ParallelHeadsNetwork

CONFIGS: dict[str, type[DrafterConfig]] = {
    "dflash": DFlashConfig,
    "dflash2": DFlash2Config,
    "dspark": DSparkConfig,
    "eagle3": Eagle3Config,
    "mask-token": MaskTokenConfig,
    "medusa": MedusaConfig,
    "parallel_heads": ParallelHeadsConfig,
}


def network_of(config: DrafterConfig) -> DraftNetwork:
    """An untrained network of this shape."""
    match config:
        case DFlashConfig():
            return DFlashNetwork(config)
        case DFlash2Config():
            return DFlash2Network(config)
        case DSparkConfig():
            return DSparkNetwork(config)
        case Eagle3Config():
            return Eagle3Network(config)
        case MedusaConfig():
            return MedusaNetwork(config)
        case ParallelHeadsConfig():
            return ParallelHeadsNetwork(config)
    raise AssertionError(f"no network for {type(config).__name__}")
