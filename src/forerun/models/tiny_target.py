"""A real transformer small enough for unit tests: random weights, milliseconds a step."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from forerun.models.transformers_target import TransformersTarget


def tiny_target(
    *,
    seed: int = 0,
    vocab_size: int = 64,
    hidden_size: int = 32,
    num_layers: int = 2,
    max_positions: int = 256,
    dtype: torch.dtype = torch.float64,
    stop_ids: tuple[int, ...] = (),
    tied: bool = False,
) -> TransformersTarget:
    """A random Llama with ``num_layers`` layers. The global random state is left as it was.

    Weights are drawn ten times larger than in training's initialisation, so that laws differ clearly from uniform.
    """
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=max_positions,
        initializer_range=0.2,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=list(stop_ids) or None,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
    return TransformersTarget(model.to(dtype), None, name=f"tiny-{seed}")
