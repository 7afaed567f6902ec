"""Drafters: things that propose tokens, each with the law the tokens were drawn from."""

from forerun.drafters.draft_model import DraftModel
from forerun.drafters.draft_model_tree import DraftModelTree
from forerun.drafters.draft_vocabulary import DraftVocabulary
from forerun.drafters.drafter import Drafter, DrafterSession
from forerun.drafters.dspark import DSparkConfig, DSparkDrafter
from forerun.drafters.load import load_drafter
from forerun.drafters.prompt_lookup import PromptLookup
from forerun.drafters.provenance import Provenance
from forerun.drafters.tree import TreeDrafter, TreeDrafterSession

__all__ = [
    "DSparkConfig",
    "DSparkDrafter",
    "DraftModel",
    "DraftModelTree",
    "DraftVocabulary",
    "Drafter",
    "DrafterSession",
    "PromptLookup",
    "Provenance",
    "TreeDrafter",
    "TreeDrafterSession",
    "load_drafter",
]
