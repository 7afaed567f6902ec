"""Any sequence of operations on a batch leaves each row what it would be alone."""

from functools import cache
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.models import TransformersTarget, tiny_target
from tests.support.batches import CheckedBatch, Piece, Row

CLOSE = 1e-10
"""Float64 through three layers; a wrong key shows at 1e-3 and above."""
VOCAB_SIZE = 64
OPERATIONS = ("pass", "pass", "pass", "long pass", "rollback", "add", "copy", "remove")


@cache
def target() -> TransformersTarget:
    return tiny_target(num_layers=3, vocab_size=VOCAB_SIZE, max_positions=1024)


def random_piece(row: Row, random: Random) -> Piece:
    """One to five tokens, as a chain or a tree with a path that is kept; a new row begins with a chain."""
    token_ids = [random.randrange(VOCAB_SIZE) for _ in range(random.randint(1, 5))]
    if random.random() < 0.5 or not row.token_ids:
        return Piece(row, token_ids)
    parents = tuple(random.randint(-1, node - 1) for node in range(len(token_ids)))
    kept: list[int] = []
    node = random.randrange(-1, len(token_ids))
    while node >= 0:
        kept.insert(0, node)
        node = parents[node]
    return Piece(row, token_ids, parents=parents, kept=kept)


@given(operations=st.lists(st.sampled_from(OPERATIONS), min_size=3, max_size=8), random=st.randoms())
@settings(max_examples=30)
def test_any_sequence_of_operations(operations: list[str], random: Random) -> None:
    """Catches keys that are lost or swapped when buffers grow, rows move, lengths differ or paths are kept.

    The oracle computes every sequence anew, without a cache.
    """
    checked = CheckedBatch(target(), target().model, close=CLOSE)
    for operation in ("add", "add", *operations):
        rows = checked.rows
        if operation == "add" or not rows:
            checked.add()
        elif operation == "copy":
            checked.add(copy_of=random.choice(rows))
        elif operation == "remove":
            checked.remove(random.choice(rows))
        elif operation == "rollback":
            row = random.choice(rows)
            checked.rollback(row, random.randint(0, len(row.token_ids)))
        elif operation == "long pass":  # past the room that buffers start with
            checked.forward(Piece(random.choice(rows), [random.randrange(VOCAB_SIZE) for _ in range(70)]), num_logits=3)
        else:
            chosen = random.sample(rows, random.randint(1, len(rows)))
            checked.forward(*(random_piece(row, random) for row in chosen))
