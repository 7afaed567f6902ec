"""DSpark: a parallel backbone over target features, with a first-order Markov head and a confidence head."""

from forerun.drafters.dspark.checkpoint import (
    check_replaceable,
    checkpoint_hash,
    load_dspark,
    read_provenance,
    save_dspark,
)
from forerun.drafters.dspark.config import DSparkConfig
from forerun.drafters.dspark.drafter import DSparkDrafter, DSparkSession
from forerun.drafters.dspark.network import ContextLayer, DSparkNetwork

__all__ = [
    "ContextLayer",
    "DSparkConfig",
    "DSparkDrafter",
    "DSparkNetwork",
    "DSparkSession",
    "check_replaceable",
    "checkpoint_hash",
    "load_dspark",
    "read_provenance",
    "save_dspark",
]
