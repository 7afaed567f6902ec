"""The guide: its links lead somewhere and its pages can be found."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(GUIDE.rglob("*.md"))]


def links(page: Path) -> list[str]:
    """Targets of a page's Markdown links, without anchors and without other sites."""
    found: list[str] = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    return [link for link in found if "://" not in link]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Would catch a page renamed or a picture forgotten."""
    missing = [link for link in links(page) if not (page.parent / link).exists()]
    assert missing == []


def test_every_page_is_in_the_index() -> None:
    """Would catch a page that nobody can find."""
    index = GUIDE / "README.md"
    listed = {(GUIDE / link).resolve() for link in links(index)}
    assert {page.resolve() for page in GUIDE.rglob("*.md")} - listed == {index.resolve()}


def test_commands_of_the_guide_exist() -> None:
    """Would catch a make target renamed in one place only."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"`make ([a-z-]+)", page.read_text(encoding="utf-8"))}
    assert "demo" in named
    assert named <= targets
