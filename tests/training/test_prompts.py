"""Which prompts may be used for training."""

from pathlib import Path
from typing import Any

import pytest

from forerun.errors import ForerunError
from forerun.training import select_prompts
from tests.support.writers import write_jsonl

THIRTEEN = "one two three four five six seven eight nine ten eleven twelve thirteen"
TWELVE = THIRTEEN.rpartition(" ")[0]


def row(id: str, text: str, **changes: Any) -> dict[str, Any]:
    return {"id": id, "domain": "math", "turns": [text], "source": "made up", "license": "MIT"} | changes


def kept(folder: Path, rows: list[dict[str, Any]], held_out: list[str] | None = None) -> list[str]:
    """Ids of the prompts that remain."""
    suites = (write_jsonl(folder / "suite.jsonl", [{"turns": held_out}]),) if held_out else ()
    selection = select_prompts(write_jsonl(folder / "prompts.jsonl", rows), licenses=("MIT",), held_out=suites)
    assert len(selection.prompts) + sum(selection.dropped.values()) == len(rows)
    return [prompt.id for prompt in selection.prompts]


def test_what_is_kept_is_what_was_written(tmp_path: Path) -> None:
    path = write_jsonl(
        tmp_path / "prompts.jsonl", [row("a", "  What is 1 + 1?\n", turns=["  What is 1 + 1?\n", "More"])]
    )
    (prompt,) = select_prompts(path, licenses=("MIT",)).prompts
    assert (prompt.id, prompt.domain, prompt.text) == ("a", "math", "What is 1 + 1?")
    assert (prompt.source, prompt.license) == ("made up", "MIT")


def test_licences_and_duplicates_are_dropped_and_counted(tmp_path: Path) -> None:
    """Catches a licence filter that lets unknown licences pass, and counts that do not add up."""
    rows = [
        row("a", "first"),
        row("b", "second", license="CC-BY-NC-4.0"),
        row("c", "third", license="mit"),  # another spelling is another licence
        row("d", "  first "),
        row("e", "fourth", license="Apache-2.0"),
        row("f", " \n\t"),
    ]
    path = write_jsonl(tmp_path / "prompts.jsonl", rows)
    selection = select_prompts(path, licenses=("MIT", "Apache-2.0"))
    assert [prompt.id for prompt in selection.prompts] == ["a", "e"]
    assert selection.dropped == {"license CC-BY-NC-4.0": 1, "license mit": 1, "duplicate": 1, "empty prompt": 1}
    everything = select_prompts(path, licenses=())
    assert [prompt.id for prompt in everything.prompts] == ["a", "b", "c", "e"]


def test_a_row_without_licence_is_not_used(tmp_path: Path) -> None:
    """Catches a missing licence that counts as a free one."""
    unlicensed = {key: value for key, value in row("b", "second").items() if key != "license"}
    assert kept(tmp_path, [row("a", "first"), unlicensed]) == ["a"]
    with pytest.raises(ForerunError, match="line 2: field 'license' is missing"):
        select_prompts(write_jsonl(tmp_path / "all.jsonl", [row("a", "first"), unlicensed]), licenses=())


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        (f"Zero {THIRTEEN} fourteen", False),
        (f"Zero, {THIRTEEN.upper().replace(' ', ' - ')}!", False),  # case and punctuation are no difference
        ("Zero\n" + THIRTEEN.replace(" ", "\n\n"), False),
        (f"Zero {TWELVE}", True),  # twelve words in common are allowed
        (f"{TWELVE} and thirteen", True),
        (THIRTEEN.replace("seven", "7"), True),
    ],
)
def test_a_run_of_thirteen_words_in_common_is_too_many(tmp_path: Path, text: str, is_kept: bool) -> None:
    """Catches another run length, and comparisons that punctuation, case or line breaks get around."""
    rows = [row("good", "something else altogether"), row("near", text)]
    suite = ["a first turn of the suite that has nothing to do with it", f"Please: {THIRTEEN}. Thank you!"]
    assert kept(tmp_path, rows, suite) == (["good", "near"] if is_kept else ["good"])


def test_a_short_prompt_is_compared_whole(tmp_path: Path) -> None:
    """Catches short test prompts that no 13-word run protects, and short prompts dropped for sharing a few words."""
    rows = [row("same", "what is 2 + 2"), row("longer", "What is 2 + 2, and why?"), row("part", "What is 2")]
    assert kept(tmp_path, rows, ["What is 2+2?"]) == ["longer", "part"]


def test_text_without_words_does_not_forbid_everything_without_words(tmp_path: Path) -> None:
    """Two prompts of symbols have no words to compare; they are dropped as too close, which is the safe side."""
    assert kept(tmp_path, [row("a", "words"), row("b", "!!!")], ["???"]) == ["a"]


@pytest.mark.parametrize("field", ["id", "domain", "source"])
def test_a_missing_field_names_line_and_field(tmp_path: Path, field: str) -> None:
    broken = {key: value for key, value in row("b", "second").items() if key != field}
    path = write_jsonl(tmp_path / "prompts.jsonl", [row("a", "first"), broken])
    with pytest.raises(ForerunError, match=rf"prompts\.jsonl, line 2: field '{field}' is missing"):
        select_prompts(path, licenses=("MIT",))


@pytest.mark.parametrize("turns", [None, [], "text", [1], [{"role": "user"}], {"user": "text"}])
def test_turns_must_be_texts(tmp_path: Path, turns: object) -> None:
    """C50. Catches an index error on an empty conversation, and a string taken for a list of letters."""
    path = write_jsonl(tmp_path / "prompts.jsonl", [row("a", "first"), row("b", "", turns=turns)])
    with pytest.raises(ForerunError, match=r"prompts\.jsonl, line 2: field 'turns' must be a non-empty list"):
        select_prompts(path, licenses=("MIT",))


def test_the_line_of_the_file_is_named_even_behind_empty_lines(tmp_path: Path) -> None:
    """Catches numbers that count rows: an editor shows lines."""
    path = tmp_path / "prompts.jsonl"
    write_jsonl(path, [row("a", "first"), "", "", row("b", "", turns=[])])
    with pytest.raises(ForerunError, match=r"prompts\.jsonl, line 4"):
        select_prompts(path, licenses=("MIT",))


def test_a_bad_row_of_a_suite_is_named_too(tmp_path: Path) -> None:
    prompts = write_jsonl(tmp_path / "prompts.jsonl", [row("a", "first")])
    suite = write_jsonl(tmp_path / "suite.jsonl", [{"turns": ["fine"]}, {"turns": []}])
    with pytest.raises(ForerunError, match=r"suite\.jsonl, line 2"):
        select_prompts(prompts, licenses=("MIT",), held_out=(suite,))


def test_two_prompts_under_one_id_are_refused(tmp_path: Path) -> None:
    """Catches answers that would be filed under one name: a resumed run would take the second for written."""
    path = write_jsonl(tmp_path / "prompts.jsonl", [row("a", "first"), row("b", "second"), row("a", "third")])
    with pytest.raises(ForerunError, match=r"prompts\.jsonl, line 3: id 'a'"):
        select_prompts(path, licenses=("MIT",))


def test_nothing_left_says_why(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "prompts.jsonl", [row("a", "first", license="GPL-3.0"), row("b", " ")])
    with pytest.raises(ForerunError, match=r"no prompt left.*license GPL-3\.0.*--license"):
        select_prompts(path, licenses=("MIT",))
    with pytest.raises(ForerunError, match="no prompt left"):
        select_prompts(write_jsonl(tmp_path / "empty.jsonl", []), licenses=())
