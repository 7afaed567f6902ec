"""Training: target-written data, captured features, and the loop that fits a drafter to its target."""

from forerun.training.features import FeatureConfig, FeatureRow, capture_features, read_features, read_manifest
from forerun.training.history import portable_command, read_history, write_history
from forerun.training.prompts import PromptSelection, TrainingPrompt, select_prompts
from forerun.training.regenerate import RegenerationConfig, RegenerationReport, regenerate
from forerun.training.run import train_drafter
from forerun.training.trainer import TrainConfig, TrainResult, train

__all__ = [
    "FeatureConfig",
    "FeatureRow",
    "PromptSelection",
    "RegenerationConfig",
    "RegenerationReport",
    "TrainConfig",
    "TrainResult",
    "TrainingPrompt",
    "capture_features",
    "portable_command",
    "read_features",
    "read_history",
    "read_manifest",
    "regenerate",
    "select_prompts",
    "train",
    "train_drafter",
    "write_history",
]
