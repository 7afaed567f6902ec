"""Rows of a batch get what transformers gives each alone: any family, ragged, with trees, joining and leaving."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from forerun.models import load_target
from forerun.models.quiet import quiet_transformers
from tests.support.batches import CheckedBatch, Piece
from tests.support.families import FAMILIES, WINDOW, write_model
from tests.support.tokenizers import VOCAB_SIZE

CLOSE = 1e-10
"""Float64 through three layers; sums in another order differ by 1e-15, a wrong key by far more than this."""
FLOAT32_SOFTMAX = {"gemma2": 1e-5}
"""transformers computes the attention weights of these families in float32, whatever the model's type."""
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
    for _ in range(2 * WINDOW // 3):
        checked.forward(Piece(late, take(3)), Piece(twin, take(1)), Piece(long, take(3)), Piece(middle, take(1)))
    checked.rollback(long, 3)
    checked.forward(Piece(long, take(2)))
    for row in list(checked.rows):
        checked.remove(row)


def test_a_tree_on_one_row_and_its_path_kept(checked: CheckedBatch, tokens: Iterator[int]) -> None:
    """Catches nodes that see their siblings, depths counted by slot, and a path whose keys stay where they were."""
    row = checked.add()
    for prompt in (0, WINDOW - 2, WINDOW):
        if prompt:
            checked.forward(Piece(row, [next(tokens) for _ in range(prompt)]))
        for kept in ((0, 2, 5, 6), (0,), (0, 1, 4), ()):
            checked.forward(Piece(row, [next(tokens) for _ in TREE], parents=TREE, kept=kept))
            checked.forward(Piece(row, [next(tokens)]))
    checked.remove(row)
