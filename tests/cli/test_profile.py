"""``forerun profile`` and ``forerun generate --costs``."""

import json
from pathlib import Path

import pytest

from forerun.evaluation.cost_profile import CostProfile, ProfileConfig
from forerun.horizons import CostSurface, DraftTime, PassTime
from tests.support.cli import forerun

QUICK = ["--context", "16", "--context", "40", "--batch-size", "1", "--batch-size", "2", "--repeats", "2"]


def test_profile_is_read_by_generate(made: Path, target_folder: Path, work: Path) -> None:
    """Every shape is timed, the file is strict, and decoding with it gives the plain text. Catches swapped parts."""
    pair = ["--target", str(target_folder), "--drafter", str(made / "drafter")]
    finished = forerun("profile", *pair, "--output", "costs.json", "--json", *QUICK)
    assert finished.code == 0, finished.err
    rows = json.loads(finished.out)
    assert {(row["batch_size"], row["context"]) for row in rows} == {(1, 16), (1, 40), (2, 16), (2, 40)}
    assert [row["horizon"] for row in rows[:3]] == [0, 1, 2]
    assert all(row["break_even_tau"] == 1.0 for row in rows if row["horizon"] == 0)
    content = json.loads((work / "costs.json").read_text())
    surface = CostSurface.from_state_dict(content["costs"])
    assert surface.measured[:3] == (0, 1, 2)
    assert surface.widths_at(2) == tuple(2 * (1 + k) for k in surface.measured)
    words = ["--temperature", "0", "--max-new-tokens", "20", "--json"]
    plain = forerun("generate", "the cat", "--target", target_folder, "--drafter", "none", *words)
    found = forerun("generate", "the cat", *pair, "--costs", "costs.json", *words)
    assert found.code == 0, found.err
    assert json.loads(found.out)["token_ids"] == json.loads(plain.out)["token_ids"]


def test_wrong_use_is_named(made: Path, target_folder: Path, work: Path) -> None:
    """One line each: another pair's costs, no costs, no drafter, a horizon or a context too large."""
    pair = ["--target", str(target_folder), "--drafter", str(made / "drafter")]
    other = {"format": "forerun-profile/1", "target": {"name": "x"}, "drafter": "y", "costs": {}}
    (work / "other.json").write_text(json.dumps(other))
    (work / "none.json").write_text("[]")
    for arguments, message in (
        (["generate", "a", *pair, "--costs", "other.json"], "measured for x with y"),
        (["generate", "a", *pair, "--costs", "none.json"], "no cost profile"),
        (["generate", "a", *pair, "--costs", "other.json", "--horizon", "2"], "--costs are for"),
        (["profile", *pair, "--output", "far/away.json"], "no folder"),
        (["profile", "--target", str(target_folder), "--drafter", "none", "--output", "c.json"], "needs a drafter"),
        (["profile", *pair, "--output", "c.json", "--context", "16", "--max-horizon", "9"], "drafts at most"),
        (["profile", *pair, "--output", "c.json", "--context", "4000"], "do not fit"),
    ):
        finished = forerun(*arguments)
        assert finished.code == 2 and message in finished.err, (arguments, finished.err)
        assert not (work / "c.json").exists()


def test_break_even_by_hand() -> None:
    """(verify + draft for each request) / plain. Catches drafting paid once for a whole batch."""
    measured = CostProfile(
        passes=tuple(
            PassTime(width=width, context_length=9, batch_size=2, seconds=(seconds,))
            for width, seconds in ((2, 2.0), (6, 3.0))
        ),
        drafts=(DraftTime(tokens=2, seconds=(0.25, 0.25, 9.0)),),
        config=ProfileConfig(contexts=(9,), batch_sizes=(2,), horizons=(2,)),
    )
    assert measured.break_even(2, context=9, batch_size=2) == pytest.approx(1.75)
    assert measured.break_even(0, context=9, batch_size=2) == 1.0
