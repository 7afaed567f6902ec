"""The model that reads mask tokens, while it is trained and when it drafts: one function for both."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from forerun.drafters.mask_token.config import MaskTokenConfig
from forerun.errors import ForerunError
from forerun.models import MaskAdapter, TransformersTarget


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MaskTokenStudent:
    """A model and its mask token.

    Attributes:
        config: shape.
        model: the target itself, or a copy of it.
        adapter: of the mask token.
        mask_id: what ``model`` calls it.
    """

    config: MaskTokenConfig
    model: TransformersTarget
    adapter: MaskAdapter
    mask_id: int

    @classmethod
    def of(cls, config: MaskTokenConfig, target: TransformersTarget) -> MaskTokenStudent:
        """An untrained one; of the riders' form it is the target, which has one extra token from now on.

        Raises:
            ForerunError: the target has no such layers.
        """
        adapter = _adapter(config).to(target.device)
        model = target
        if config.form == "copy":
            tokenizer = target.tokenizer if target.has_tokenizer else None
            inner = copy.deepcopy(target.model)
            model = TransformersTarget(inner, tokenizer, name=f"{target.name} with masks")
            inner.requires_grad_(True)
        return cls(config=config, model=model, adapter=adapter, mask_id=model.extra_tokens.add(adapter))

    @classmethod
    def reading(
        cls, config: MaskTokenConfig, model: TransformersTarget, weights: dict[str, Tensor]
    ) -> MaskTokenStudent:
        """A trained one, to draft with.

        Args:
            config: shape.
            model: reads the masks; it has one extra token from now on.
            weights: of the adapter.

        Raises:
            ForerunError: a tensor has another shape, or the model no such layers.
        """
        adapter = _adapter(config)
        for name, value in adapter.state_dict().items():
            if weights[name].shape != value.shape:
                shapes = f"{tuple(weights[name].shape)}, the config asks for {tuple(value.shape)}"
                raise ForerunError(f"mask token: tensor {name} has shape {shapes}")
        adapter.load_state_dict({name: value.float() for name, value in weights.items()})
        adapter = adapter.to(device=model.device, dtype=model.dtype).requires_grad_(False)
        return cls(config=config, model=model, adapter=adapter, mask_id=model.extra_tokens.add(adapter))

    @staticmethod
    def weight_names(config: MaskTokenConfig) -> list[str]:
        """Names of the adapter's tensors."""
        return list(_adapter(config).state_dict())

    def initialise(self, *, generator: torch.Generator) -> None:
        """The mask begins as the mean of all tokens, the updates as none."""
        self.adapter.initialise(generator=generator, embedding=self.model.embedding_weight.float().mean(0))

    @property
    def trained(self) -> nn.Module:
        """All that training changes; a copy's tied weights stand in it once."""
        modules: dict[str, nn.Module] = {"adapter": self.adapter}
        if self.config.form == "copy":
            modules["model"] = self.model.model
        return nn.ModuleDict(modules)


def _adapter(config: MaskTokenConfig) -> MaskAdapter:
    return MaskAdapter(config.hidden_size, config.sites, rank=config.rank, alpha=config.alpha)
