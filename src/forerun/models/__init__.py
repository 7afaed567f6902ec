"""Targets: the frozen models that speculative decoding must not change."""

from forerun.models.embedded import EMBEDDED_TARGET
from forerun.models.load import load_target
from forerun.models.mask_adapter import MaskAdapter, find_sites
from forerun.models.packed_linear import PackedLinear, can_pack, pack_linears
from forerun.models.table_target import TableTarget
from forerun.models.target import Block, Target, TargetBatch, TargetCache, TargetStep, TeacherStep
from forerun.models.tiny_target import tiny_target
from forerun.models.tokenizer import Tokenizer
from forerun.models.transformers_target import TransformersTarget

__all__ = [
    "EMBEDDED_TARGET",
    "Block",
    "MaskAdapter",
    "PackedLinear",
    "TableTarget",
    "Target",
    "TargetBatch",
    "TargetCache",
    "TargetStep",
    "TeacherStep",
    "Tokenizer",
    "TransformersTarget",
    "can_pack",
    "find_sites",
    "load_target",
    "pack_linears",
    "tiny_target",
]
