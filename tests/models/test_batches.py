"""Rows of a batch get what transformers gives each alone: any family, ragged, with trees, joining and leaving."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, GPTNeoConfig, Llama4TextConfig, PreTrainedConfig

from forerun.errors import ForerunError
from forerun.models import Block, TransformersTarget, load_target
from forerun.models.grouped_attention import GROUPED
from forerun.models.quiet import quiet_transformers
from tests.support.accelerator import compute_as_on_an_accelerator
from tests.support.batches import CheckedBatch, Piece
from tests.support.families import FAMILIES, HEADS, WINDOW, random_model, write_model
from tests.support.tokenizers import VOCAB_SIZE

CLOSE = 1e-10
"""Float64 through three layers; sums in another order differ by 1e-15, a wrong key by far more than this."""
FLOAT32_SOFTMAX = {"gemma2": 1e-5}
"""transformers computes the attention weights of these families in float32, whatever the model's type."""
ONE_OF_EACH_MASK = ["llama", "gemma2", "mistral", "qwen2"]
"""All layers full, mixed with added numbers, all sliding, mixed."""
TREE = (-1, 0, 0, 1, 1, 2, 5)
"""A root, two children, three grandchildren; the longest path is 0, 2, 5, 6."""


@pytest.fixture(scope="module", params=FAMILIES)
def checked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CheckedBatch:
    folder: Path = write_model(tmp_path_factory.mktemp(request.param) / "model", FAMILIES[request.param]())
    with quiet_transformers():
        reference: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float64, experts_implementation="eager"
        )
    return CheckedBatch(
        load_target(folder, dtype="float64"), reference, close=FLOAT32_SOFTMAX.get(request.param, CLOSE)
    )


@pytest.fixture
def tokens() -> Iterator[int]:
    generator = torch.Generator().manual_seed(0)
    return iter(torch.randint(4, VOCAB_SIZE, (1000,), generator=generator).tolist())


def test_rows_of_any_length_join_grow_roll_back_and_leave(checked: CheckedBatch, tokens: Iterator[int]) -> None:
    """Catches rows that see each other, padding, keys of another window, or a neighbour's old keys."""

    def take(count: int) -> list[int]:
        return [next(tokens) for _ in range(count)]

    short, middle, long = (checked.add() for _ in range(3))
    checked.forward(Piece(short, take(1)), Piece(middle, take(5)), Piece(long, take(20)), num_logits=2)
    for kept in ((1, 3, 2), (1, 1, 1), (1, 4, 1)):
        lengths = [len(row.token_ids) for row in checked.rows]
        checked.forward(Piece(short, take(1)), Piece(middle, take(4)), Piece(long, take(2)))
        for row, length, count in zip((short, middle, long), lengths, kept, strict=True):
            checked.rollback(row, length + count)
    checked.remove(short)  # the long row moves into its place
    late = checked.add()
    checked.forward(Piece(late, take(11)))
    checked.forward(Piece(late, take(1)), Piece(long, take(3)))  # in another order, with a row between them that waits
    twin = checked.add(copy_of=middle)
    checked.forward(*(Piece(row, take(2)) for row in checked.rows), num_logits=1)
    checked.forward(
        Piece(late, take(7), parents=TREE, kept=(0, 2, 5, 6)),
        Piece(twin, take(2)),
        Piece(long, take(7), parents=TREE, kept=(0, 1)),
    )
    for _ in range(WINDOW // 3):
        checked.forward(Piece(late, take(3)), Piece(twin, take(1)), Piece(long, take(3)), Piece(middle, take(1)))
    checked.rollback(long, 3)
    checked.forward(Piece(long, take(2)))
    for row in list(checked.rows):
        checked.remove(row)


@pytest.mark.parametrize("checked", ["llama"], indirect=True)
def test_rows_of_any_length_without_waiting(
    checked: CheckedBatch, tokens: Iterator[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches logits of other tokens where they are named by place instead of by a mask."""
    compute_as_on_an_accelerator(monkeypatch)
    test_rows_of_any_length_join_grow_roll_back_and_leave(checked, tokens)


@pytest.mark.parametrize("checked", ONE_OF_EACH_MASK, indirect=True)
def test_a_tree_on_one_row_and_its_path_kept(checked: CheckedBatch, tokens: Iterator[int]) -> None:
    """Catches nodes that see their siblings, depths counted by slot, and a path whose keys stay where they were."""
    row = checked.add()
    checked.forward(Piece(row, [next(tokens) for _ in range(WINDOW - 2)]))
    for kept in ((0, 2, 5, 6), (0,), (0, 1, 4), ()):
        checked.forward(Piece(row, [next(tokens) for _ in TREE], parents=TREE, kept=kept))
        checked.forward(Piece(row, [next(tokens)]))
    deep = (-1, 0, 0, *range(2, WINDOW + 3))  # its path is longer than the window, and lies one slot behind its depth
    checked.forward(Piece(row, [next(tokens) for _ in deep], parents=deep, kept=(0, *range(2, len(deep)))))
    checked.forward(Piece(row, [next(tokens)]))
    checked.remove(row)


@pytest.mark.parametrize("checked", ONE_OF_EACH_MASK, indirect=True)
def test_what_padding_holds_does_not_matter(checked: CheckedBatch, tokens: Iterator[int]) -> None:
    """Catches padding that is seen, in its own pass or later: its token ids are replaced by others on the way in."""
    short, long = checked.add(), checked.add()
    widths = torch.tensor([[2], [9]])

    def scramble(_module: nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        padding = torch.arange(inputs[0].shape[1]) >= widths
        return (torch.where(padding, torch.randint(VOCAB_SIZE, inputs[0].shape), inputs[0]),)

    handle = checked.target.model.get_input_embeddings().register_forward_pre_hook(scramble)
    checked.forward(Piece(short, [next(tokens) for _ in range(2)]), Piece(long, [next(tokens) for _ in range(9)]))
    handle.remove()
    checked.forward(Piece(short, [next(tokens)]), Piece(long, [next(tokens) for _ in range(4)]))
    for row in (short, long):
        checked.remove(row)


@pytest.mark.parametrize("checked", ONE_OF_EACH_MASK, indirect=True)
def test_numbers_that_are_not_finite_leave_with_their_row(checked: CheckedBatch, tokens: Iterator[int]) -> None:
    """Catches a broken request that poisons those after it: a hidden NaN times an attention weight of 0 is NaN."""
    embedding = checked.target.model.get_input_embeddings()
    for broken_is_last in (True, False):
        rows = [checked.add(), checked.add()]
        broken, neighbour = reversed(rows) if broken_is_last else rows
        handle = embedding.register_forward_hook(lambda _module, _inputs, output: output * float("nan"))
        broken.token_ids += [5] * 12
        checked.target.forward(torch.tensor(broken.token_ids), broken.cache)
        handle.remove()
        checked.forward(Piece(neighbour, [next(tokens) for _ in range(14)]))
        checked.remove(broken)
        late = checked.add()
        checked.forward(Piece(late, [next(tokens)]), Piece(neighbour, [next(tokens)]))  # no padding hides what was left
        for row in (late, neighbour):
            checked.remove(row)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "gemma3", "gpt-neox"])
def test_attention_without_copies_is_the_same_attention(family: str, tokens: Iterator[int]) -> None:
    """Catches heads that read the keys of another group, and masks that do not follow them."""
    models = [random_model(FAMILIES[family]()) for _ in range(2)]
    for model in models:
        nn.Module.to(model, torch.float64)
    target = TransformersTarget(models[0], None, name=family, optimize=True)
    assert (target.model.config._attn_implementation, models[1].config._attn_implementation) == (GROUPED, "sdpa")
    checked = CheckedBatch(target, models[1], close=CLOSE)
    first, second = checked.add(), checked.add()
    checked.forward(Piece(first, [next(tokens) for _ in range(13)]))
    checked.forward(Piece(first, [next(tokens)]))  # no mask
    checked.forward(Piece(second, [next(tokens) for _ in range(3)]), Piece(first, [next(tokens)]))
    for kept in ((0, 2, 5), (0, 1, 3)):
        checked.forward(
            Piece(second, [next(tokens) for _ in TREE], parents=TREE, kept=kept),
            Piece(first, [next(tokens) for _ in range(4)]),
        )


def refused(config: PreTrainedConfig) -> TransformersTarget:
    return TransformersTarget(random_model(config), None, name="this one")


def test_attention_that_takes_no_masks_is_refused_where_it_needs_one() -> None:
    """Catches models whose layers make a causal mask of their own: in a ragged batch it would be a wrong one."""
    target = refused(
        GPTNeoConfig(
            vocab_size=64, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]]
        )
    )
    ids = torch.arange(6)
    alone = target.forward(ids, target.new_cache()).logits  # one chain alone needs none
    batch = target.new_batch()
    blocks = [Block(cache=batch.add(), token_ids=ids), Block(cache=batch.add(), token_ids=ids)]
    for step in target.forward_batch(blocks):  # nor do rows that agree
        torch.testing.assert_close(step.logits, alone)
    with pytest.raises(ForerunError, match="this one: this model's attention takes no masks"):
        target.forward_batch([blocks[0], Block(cache=blocks[1].cache, token_ids=ids[:2])])


def test_attention_in_chunks_is_refused() -> None:
    """Catches a kind of layer that our masks do not describe."""
    with pytest.raises(ForerunError, match="this one: attention in chunks"):
        refused(Llama4TextConfig(**HEADS, attention_chunk_size=8, num_local_experts=2))


def test_a_padded_row_at_the_last_position(tokens: Iterator[int]) -> None:
    """Catches padding that asks a table of learned positions for a row it has not."""
    model = random_model(FAMILIES["gpt2"]())
    nn.Module.to(model, torch.float64)
    checked = CheckedBatch(TransformersTarget(model, None, name="gpt2"), model, close=CLOSE)
    full, new, waiting = checked.add(), checked.add(), checked.add()
    for row, count in ((full, 127), (waiting, 128)):
        checked.forward(Piece(row, [next(tokens) for _ in range(count)]))
    checked.forward(Piece(full, [next(tokens)]), Piece(new, [next(tokens) for _ in range(5)]))
    checked.remove(new)  # now the row that waits stands beside the full one
    late = checked.add()
    checked.rollback(full, 127)
    checked.forward(Piece(full, [next(tokens)]), Piece(late, [next(tokens) for _ in range(3)]))
