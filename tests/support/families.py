"""Tiny random models of many families, written as folders the way users have them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Cohere2Config,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    Phi3Config,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from forerun.models.quiet import quiet_transformers
from tests.support.tokenizers import VOCAB_SIZE, byte_tokenizer

WINDOW = 8
"""Of the families with sliding windows; tests use several times as many tokens."""

COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,  # ten times the usual, so that laws differ clearly from uniform
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}
GROUPED: dict[str, Any] = {**COMMON, "num_key_value_heads": 2}
HEADS: dict[str, Any] = {**GROUPED, "head_dim": 8}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]

FAMILIES: dict[str, Callable[[], PreTrainedConfig]] = {
    "llama": lambda: LlamaConfig(**GROUPED),
    "llama-tied": lambda: LlamaConfig(**GROUPED, tie_word_embeddings=True),
    "qwen2": lambda: Qwen2Config(**GROUPED, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1),
    "qwen3": lambda: Qwen3Config(**HEADS),
    "gemma2": lambda: Gemma2Config(
        **HEADS, sliding_window=WINDOW, attn_logit_softcapping=5.0, final_logit_softcapping=3.0, query_pre_attn_scalar=8
    ),
    "gemma3": lambda: Gemma3TextConfig(**HEADS, sliding_window=WINDOW, layer_types=MIXED, query_pre_attn_scalar=8),
    "mistral": lambda: MistralConfig(**GROUPED, sliding_window=WINDOW),
    "phi3": lambda: Phi3Config(**GROUPED),
    "olmo2": lambda: Olmo2Config(**GROUPED),
    "gpt-neox": lambda: GPTNeoXConfig(**COMMON),
    "gpt2": lambda: GPT2Config(
        vocab_size=VOCAB_SIZE, n_embd=32, n_layer=3, n_head=4, n_positions=128, initializer_range=0.2, eos_token_id=1
    ),
    "cohere2": lambda: Cohere2Config(**GROUPED, sliding_window=WINDOW),
    "mixtral": lambda: MixtralConfig(**GROUPED, num_local_experts=4, num_experts_per_tok=2),
    "gpt-oss": lambda: GptOssConfig(**HEADS, sliding_window=WINDOW, num_local_experts=4, num_experts_per_tok=2),
}


def random_model(config: PreTrainedConfig, *, seed: int = 0) -> PreTrainedModel:
    """A model of this shape in float32; the global random state is left as it was."""
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
    assert isinstance(model, PreTrainedModel)
    model.eval()
    return model


def write_model(folder: Path, config: PreTrainedConfig, *, seed: int = 0) -> Path:
    """Save a random model with a tokenizer; returns the folder."""
    with quiet_transformers():
        random_model(config, seed=seed).save_pretrained(folder)
        byte_tokenizer().save_pretrained(folder)
    return folder
