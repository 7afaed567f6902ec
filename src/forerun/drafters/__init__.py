"""Drafters: things that propose tokens, each with the law the tokens were drawn from."""

from forerun.drafters.architectures import network_of
from forerun.drafters.attention import LayerShape
from forerun.drafters.block_inputs import BlockInputs, SlotIndices, slot_indices
from forerun.drafters.checkpoint import (
    check_replaceable,
    checkpoint_hash,
    load_network,
    load_network_drafter,
    read_config,
    read_provenance,
    save_drafter,
)
from forerun.drafters.config import DrafterConfig
from forerun.drafters.declarations import Dependence, Need, Saving
from forerun.drafters.dflash import DFlashConfig, DFlashNetwork
from forerun.drafters.dflash2 import DFlash2Config, DFlash2Network
from forerun.drafters.draft_model import DraftModel
from forerun.drafters.draft_model_tree import DraftModelTree
from forerun.drafters.draft_vocabulary import DraftVocabulary
from forerun.drafters.drafter import Drafter, DrafterSession, ForeseeingSession
from forerun.drafters.dspark import DSparkConfig, DSparkNetwork
from forerun.drafters.eagle3 import Eagle3Config, Eagle3Network
from forerun.drafters.eagle3_tree import Eagle3Tree, Eagle3TreeSession
from forerun.drafters.independent import IndependentNetwork
from forerun.drafters.load import load_drafter
from forerun.drafters.markov import MarkovKind
from forerun.drafters.mask_token import MaskTokenConfig, MaskTokenModel, MaskTokenRiders, MaskTokenStudent
from forerun.drafters.mask_token.checkpoint import load_mask_student, save_mask_token
from forerun.drafters.medusa import MedusaConfig, MedusaNetwork
from forerun.drafters.network import Borrowed, DraftContext, DraftNetwork, DraftStates, Head, OpenBlock, PlainHead
from forerun.drafters.network_drafter import NetworkDrafter, NetworkSession, ProposalPolicy
from forerun.drafters.parallel_heads import ParallelHeadsConfig, ParallelHeadsNetwork, can_start_as_last_layer
from forerun.drafters.past_outputs import PastOutputs
from forerun.drafters.prompt_lookup import PromptLookup
from forerun.drafters.provenance import Provenance
from forerun.drafters.riders import Riders, RidingSession
from forerun.drafters.rope import Rope
from forerun.drafters.stop import DraftStop
from forerun.drafters.suffix_lookup import SuffixLookup, SuffixLookupSession, SuffixMatch
from forerun.drafters.tree import TreeDrafter, TreeDrafterSession

__all__ = [
    "BlockInputs",
    "Borrowed",
    "DFlash2Config",
    "DFlash2Network",
    "DFlashConfig",
    "DFlashNetwork",
    "DSparkConfig",
    "DSparkNetwork",
    "Dependence",
    "DraftContext",
    "DraftModel",
    "DraftModelTree",
    "DraftNetwork",
    "DraftStates",
    "DraftStop",
    "DraftVocabulary",
    "Drafter",
    "DrafterConfig",
    "DrafterSession",
    "Eagle3Config",
    "Eagle3Network",
    "Eagle3Tree",
    "Eagle3TreeSession",
    "ForeseeingSession",
    "Head",
    "IndependentNetwork",
    "LayerShape",
    "MarkovKind",
    "MaskTokenConfig",
    "MaskTokenModel",
    "MaskTokenRiders",
    "MaskTokenStudent",
    "MedusaConfig",
    "MedusaNetwork",
    "Need",
    "NetworkDrafter",
    "NetworkSession",
    "OpenBlock",
    "ParallelHeadsConfig",
    "ParallelHeadsNetwork",
    "PastOutputs",
    "PlainHead",
    "PromptLookup",
    "ProposalPolicy",
    "Provenance",
    "Riders",
    "RidingSession",
    "Rope",
    "Saving",
    "SlotIndices",
    "SuffixLookup",
    "SuffixLookupSession",
    "SuffixMatch",
    "TreeDrafter",
    "TreeDrafterSession",
    "can_start_as_last_layer",
    "check_replaceable",
    "checkpoint_hash",
    "load_drafter",
    "load_mask_student",
    "load_network",
    "load_network_drafter",
    "network_of",
    "read_config",
    "read_provenance",
    "save_drafter",
    "save_mask_token",
    "slot_indices",
]
