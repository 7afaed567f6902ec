"""The networks that a checkpoint can hold, by the word in its configuration."""

from __future__ import annotations

from forerun.drafters.config import DrafterConfig
from forerun.drafters.dspark import DSparkConfig, DSparkNetwork
from forerun.drafters.eagle3 import Eagle3Config, Eagle3Network
from forerun.drafters.medusa import MedusaConfig, MedusaNetwork
from forerun.drafters.network import DraftNetwork

CONFIGS: dict[str, type[DrafterConfig]] = {
    "dspark": DSparkConfig,
    "eagle3": Eagle3Config,
    "medusa": MedusaConfig,
}


def network_of(config: DrafterConfig) -> DraftNetwork:
    """An untrained network of this shape."""
    match config:
        case DSparkConfig():
            return DSparkNetwork(config)
        case Eagle3Config():
            return Eagle3Network(config)
        case MedusaConfig():
            return MedusaNetwork(config)
    raise AssertionError(f"no network for {type(config).__name__}")
