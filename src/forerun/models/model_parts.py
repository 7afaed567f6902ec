"""Where a causal language model of transformers keeps what a target needs, whatever its family."""

from __future__ import annotations

import hashlib
import json

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from forerun.errors import ForerunError

_FINAL_NORM_NAMES = ("norm", "final_layer_norm", "final_layernorm", "ln_f", "final_norm")
_HASHED_VALUES_PER_TENSOR = 4096

# Written by transformers when it saves or loads; they say nothing about the function that the model computes.
_VOLATILE_CONFIG_KEYS = frozenset(
    {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures", "_attn_implementation"}
)


def layer_types(model: PreTrainedModel) -> list[str]:
    """Some hybrids do not call themselves stateful, but name their recurrent or convolutional layers here."""
    return list(model.config.get_text_config().to_dict().get("layer_types") or ())


def decoder_layers(model: PreTrainedModel, num_layers: int, name: str) -> nn.ModuleList:
    """The stack of decoder layers.

    Raises:
        ForerunError: there is no such list; ``name`` says of which model.
    """
    lists = [
        module for _, module in model.named_modules() if isinstance(module, nn.ModuleList) and len(module) == num_layers
    ]
    if not lists:
        raise ForerunError(
            f"{name}: no list of {num_layers} decoder layers found; only decoder-only models can be targets"
        )
    return lists[0]  # named_modules walks outside in: the first is the stack itself, not a list inside a layer


def final_norm(model: PreTrainedModel, name: str) -> nn.Module:
    """What stands between the last layer and the head.

    Raises:
        ForerunError: it has none of the known names.
    """
    children = dict(model.base_model.named_children())
    for candidate in _FINAL_NORM_NAMES:
        if candidate in children:
            return children[candidate]
    raise ForerunError(
        f"{name}: final norm not found among {sorted(children)}; known names are {', '.join(_FINAL_NORM_NAMES)}"
    )


def embedding_weight(model: PreTrainedModel, name: str) -> Tensor:
    """The weight of the input embeddings.

    Raises:
        ForerunError: they are no plain table.
    """
    embedding = model.get_input_embeddings()
    if not isinstance(embedding, nn.Embedding):
        raise ForerunError(f"{name}: input embeddings are {type(embedding).__name__}, not a plain table")
    return embedding.weight.detach()


def language_head(model: PreTrainedModel, name: str) -> nn.Linear:
    """The language-model head.

    Raises:
        ForerunError: the model has none.
    """
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise ForerunError(f"{name}: it has no language-model head; only causal language models can be targets")
    return head


def stop_ids(model: PreTrainedModel) -> tuple[int, ...]:
    """Tokens that end an answer, of the generation settings and of the model's."""
    sources = [model.generation_config.eos_token_id if model.generation_config else None, model.config.eos_token_id]
    ids: set[int] = set()
    for source in sources:
        if source is not None:
            ids.update(source if isinstance(source, list) else [source])
    return tuple(sorted(ids))


def weights_fingerprint(model: PreTrainedModel) -> str:
    """A strided sample is hashed, not the whole weights: 50 ms instead of seconds, and any training moves it."""
    config = {key: value for key, value in model.config.to_dict().items() if key not in _VOLATILE_CONFIG_KEYS}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for key, tensor in sorted(model.state_dict().items()):
        flat = tensor.detach().reshape(-1)
        sample = flat[:: max(1, flat.numel() // _HASHED_VALUES_PER_TENSOR)].to(device="cpu", dtype=torch.bfloat16)
        digest.update(f"{key}{tuple(tensor.shape)}".encode())
        digest.update(sample.view(torch.int16).numpy().tobytes())
    return digest.hexdigest()
