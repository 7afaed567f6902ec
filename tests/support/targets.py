"""Targets whose answers a test can write down beforehand."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig

from forerun.models import TableTarget, Target, Tokenizer, TransformersTarget

_EPS = 1e-6


def markov_target(
    logits: Float[Tensor, "vocab vocab"],
    *,
    tokenizer: Tokenizer | None = None,
    stop_ids: tuple[int, ...] = (),
    max_positions: int = 512,
) -> TransformersTarget:
    """A real transformer, float64, whose next-token logits are row ``t`` of ``logits`` after token ``t``.

    One-hot embeddings, layers that add nothing, and a head that reads the table.
    """
    vocab = len(logits)
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=vocab,
        intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=4,
        max_position_embeddings=max_positions,
        rms_norm_eps=_EPS,
        bos_token_id=None,
        eos_token_id=list(stop_ids) or None,
        pad_token_id=None,
    )
    model = AutoModelForCausalLM.from_config(config).double()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "o_proj" in name or "down_proj" in name:
                weight.zero_()
        model.get_input_embeddings().weight.copy_(torch.eye(vocab))
        one_hot_after_norm = (1 / vocab + _EPS) ** -0.5
        model.get_output_embeddings().weight.copy_(logits.double().T / one_hot_after_norm)
    return TransformersTarget(model, tokenizer, name="markov")


def successor_target(
    successors: Mapping[int, int],
    *,
    vocab_size: int,
    tokenizer: Tokenizer | None = None,
    stop_ids: tuple[int, ...] = (),
    max_positions: int = 512,
    sharpness: float = 40.0,
) -> TransformersTarget:
    """Says ``successors[t]`` after token t; tokens without a successor are followed by themselves."""
    logits = torch.zeros(vocab_size, vocab_size, dtype=torch.float64)
    for token in range(vocab_size):
        logits[token, successors.get(token, token)] = sharpness
    return markov_target(logits, tokenizer=tokenizer, stop_ids=stop_ids, max_positions=max_positions)


def spelling_target(
    text: str, tokenizer: Tokenizer, *, start: int, stop_ids: tuple[int, ...] = (), max_positions: int = 512
) -> tuple[TransformersTarget, list[int]]:
    """A target that writes ``text`` after the token ``start``, then repeats its last token; and the ids it writes.

    No token of ``text`` may occur twice, for the target knows the last token only.
    """
    ids = tokenizer.encode(text)[1:]  # without the BOS
    assert len({start, *ids}) == len(ids) + 1, f"{text!r} repeats a token: {ids}"
    successors = dict(zip([start, *ids], ids, strict=False))
    target = successor_target(
        successors, vocab_size=300, tokenizer=tokenizer, stop_ids=stop_ids, max_positions=max_positions
    )
    return target, ids


def random_table(
    seed: int,
    *,
    vocab_size: int,
    order: int = 2,
    stop_ids: tuple[int, ...] = (),
    max_positions: int = 1_000_000,
    spread: float = 1.2,
) -> TableTarget:
    """Random logits for every value of the last ``order`` tokens; shorter prefixes are filled up with token 0."""
    generator = torch.Generator().manual_seed(seed)
    table = spread * torch.randn(*[vocab_size] * (order + 1), generator=generator, dtype=torch.float64)

    def logits_of(prefix: tuple[int, ...]) -> Float[Tensor, " vocab"]:
        state = ((0,) * order + prefix)[len(prefix) :]
        row: Tensor = table[state]
        return row

    return TableTarget(logits_of, vocab_size=vocab_size, stop_ids=stop_ids, max_positions=max_positions)


def fresh_greedy(target: Target, prompt: Sequence[int], count: int) -> list[int]:
    """Prompt and plain greedy answer, each token from a whole pass with a new cache: no cache, no rounds, no laws."""
    ids = list(prompt)
    for _ in range(count):
        logits = target.forward(torch.tensor(ids), target.new_cache(), num_logits=1).logits[0]
        ids.append(int(logits.argmax()))
    return ids
