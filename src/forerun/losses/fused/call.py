"""What a caller gave, checked and laid out with one axis of positions."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from forerun.errors import ForerunError
from forerun.losses.divergence import Divergence
from forerun.losses.fused.chunks import SMALLEST_CHUNK, Backend
from forerun.losses.fused.laws import Projection, TargetStates, TopKTarget


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Call:
    """One use of the fused path, as the caller has it; see `fused_values` for the attributes."""

    draft: tuple[Projection, ...]
    target: TargetStates | TopKTarget | None
    divergence: Divergence
    bias: Float[Tensor, " draft_vocab"] | None
    labels: Int64[Tensor, "*batch"] | None
    mask: Bool[Tensor, "*batch"] | None
    weights: Float[Tensor, "*#batch"] | None
    chunk: int
    backend: Backend

    def check(self) -> None:
        """Refuse what does not fit together.

        Raises:
            ForerunError: as `fused_values` says.
        """
        if not self.draft:
            raise ForerunError("the draft has no projection; give at least one")
        if self.chunk < SMALLEST_CHUNK:
            raise ForerunError(f"chunk is {self.chunk}; give at least {SMALLEST_CHUNK} positions")
        if self.backend == "triton" and importlib.util.find_spec("triton") is None:
            raise ForerunError("backend='triton' needs the package triton; install forerun[gpu], or use 'torch'")
        if self.divergence.needs_labels and self.labels is None:
            raise ForerunError("cross-entropy needs labels; give the data tokens, or leave it out of the divergence")
        if self.divergence.needs_target and self.target is None:
            raise ForerunError("the divergence needs the target's law; give TargetStates or TopKTarget")
        batch = self.draft[0].hidden.shape[:-1]
        for name, tensor, trailing in self._by_position():
            if tensor.shape[: tensor.ndim - trailing] != batch:
                raise ForerunError(
                    f"{name} {tuple(tensor.shape)} does not have the positions {tuple(batch)} of the draft's hidden"
                )
        vocab = self.draft[0].weight.shape[0]
        for name, size in self._vocabularies():
            if size != vocab:
                raise ForerunError(f"{name} has {size} tokens, the draft's weight {vocab}; give rows of one vocabulary")

    def _by_position(self) -> list[tuple[str, Tensor, int]]:
        """Everything with an entry per position, and its axes after those of the positions."""
        named: list[tuple[str, Tensor | None, int]] = [("hidden", projection.hidden, 1) for projection in self.draft]
        named += [("labels", self.labels, 0), ("mask", self.mask, 0)]
        if isinstance(self.target, TargetStates):
            named += [("target hidden", self.target.hidden, 1), ("log_normaliser", self.target.log_normaliser, 0)]
        if isinstance(self.target, TopKTarget):
            named += [("token_ids", self.target.token_ids, 1)]
        return [(name, tensor, trailing) for name, tensor, trailing in named if tensor is not None]

    def _vocabularies(self) -> list[tuple[str, int]]:
        """Everything with an entry per draft token, and how many it has."""
        named = [("a projection's weight", projection.weight.shape[0]) for projection in self.draft]
        if self.bias is not None:
            named.append(("bias", self.bias.shape[0]))
        if isinstance(self.target, TargetStates):
            ids = self.target.draft_token_ids
            named.append(("the target's law", self.target.weight.shape[0] if ids is None else ids.shape[0]))
        return named

    def row_weights(self) -> Float[Tensor, " positions"]:
        """The weight of every position.

        Raises:
            ForerunError: the weights do not broadcast to the positions.
        """
        hidden = self.draft[0].hidden
        batch = hidden.shape[:-1]
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        if self.weights is None:
            return hidden.new_ones(batch.numel(), dtype=dtype)
        try:
            return self.weights.to(dtype=dtype, device=hidden.device).expand(batch).reshape(-1)
        except RuntimeError as error:
            raise ForerunError(
                f"weights {tuple(self.weights.shape)} do not broadcast to positions {tuple(batch)}; positions come last"
            ) from error

    def fixed(self) -> list[Tensor | None]:
        """Tensors that are no projections and no row weights, as the operator takes them."""
        of_target: list[Tensor | None] = [None] * 7
        match self.target:
            case TargetStates():
                of_target = [
                    _flat(self.target.hidden, 1), self.target.weight, self.target.bias, self.target.draft_token_ids,
                    _flat(self.target.log_normaliser, 0), None, None,
                ]  # fmt: skip
            case TopKTarget():
                of_target[5:] = [_flat(self.target.token_ids, 1), _flat(self.target.log_probs, 1)]
        return [_flat(self.labels, 0), _flat(self.mask, 0), *of_target]

    def options(self) -> tuple[int, tuple[float, ...], float | None, int, Backend]:
        """Numbers: of projections, of the divergence, soft cap, chunk, backend."""
        soft_cap = self.target.soft_cap if isinstance(self.target, TargetStates) else None
        return len(self.draft), self.divergence.terms, soft_cap, self.chunk, self.backend

    def differentiable(self) -> list[Tensor | None]:
        """Hidden states, weights and bias of the draft."""
        hiddens = [_flat(projection.hidden, 1) for projection in self.draft]
        return [*hiddens, *(projection.weight for projection in self.draft), self.bias]


def _flat(tensor: Tensor | None, trailing: int) -> Tensor | None:
    """One axis of positions, then the trailing ones."""
    return None if tensor is None else tensor.reshape(-1, *tensor.shape[tensor.ndim - trailing :])
