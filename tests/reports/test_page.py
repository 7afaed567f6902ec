"""The page: whole, honest, harmless and without a single request."""

import re
from html.parser import HTMLParser
from typing import final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from forerun.reports import render_page
from forerun.reports.page import NUM_ARM_COLOURS, arm_kinds
from forerun.reports.schema import DemoResult, TraceRound
from tests.reports.sample import FASTER, SLOWER, answer_trace, arm_run, cost_curve, demo_result

HOSTILE = "</div><script>alert('\"&')</script>{{ 7 * 7 }}"
VOID_TAGS = {"meta", "link", "br"}


@final
class Page(HTMLParser):
    """Collects a page's texts and attributes, and checks that its tags are balanced."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open_tags: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)
        self.close()
        assert self.open_tags == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID_TAGS:
            self.open_tags.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open_tags[-1] if self.open_tags else "", data))

    def text_of(self, *tags: str) -> str:
        """Everything written directly within these tags."""
        return "".join(text for tag, text in self.texts if tag in tags)


def full_result(text: str = "word") -> DemoResult:
    """Every part of the page filled, with `text` wherever a string is free."""
    runs = tuple(
        run
        for temperature in (0.0, 1.0)
        for run in (
            arm_run("plain", temperature=temperature),
            arm_run(text, temperature=temperature, ratio=SLOWER),
            arm_run("AMTP", temperature=temperature, ratio=FASTER),
            arm_run("AMTP", task="math", temperature=temperature, ratio=None, exact=False),
        )
    )
    rounds = (TraceRound(tokens=(text, "\n", text), horizon=3, accepted=2),)
    trace = answer_trace(text, rounds=rounds, opening=text)
    return demo_result(runs=runs, traces=(trace,), cost_curve=cost_curve(), command=text, quick=True)


EMPTY = demo_result(runs=(), traces=(), commit=None)
ONLY_TRACE = demo_result(runs=(), traces=(answer_trace(rounds=()),))
ONLY_PLAIN = demo_result(runs=(arm_run("plain"),), traces=(), cost_curve=cost_curve())


@pytest.mark.parametrize("result", [full_result(), full_result(HOSTILE), EMPTY, ONLY_TRACE, ONLY_PLAIN])
def test_the_page_is_balanced_and_asks_for_nothing(result: DemoResult) -> None:
    """Would catch a broken table, a script, and any address that a browser would fetch."""
    page = Page(render_page(result))
    assert not {"script", "img", "iframe", "object", "form"} & set(page.tags)
    addresses = [value for name, value in page.attributes if name in {"src", "href", "srcset", "action", "data"}]
    assert addresses == ["data:,"]
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    style = page.text_of("style")
    assert "url(" not in style
    assert "@import" not in style
    assert "None" not in page.text_of("td", "dd", "p", "h1", "li", "text", "figcaption")


def test_special_characters_arrive_as_they_were() -> None:
    """Would catch tokens that become markup, are escaped twice, or are run as a template."""
    page = Page(render_page(full_result(HOSTILE)))
    assert page.texts.count(("mark", HOSTILE)) == 1
    assert page.texts.count(("b", HOSTILE)) == 2
    assert ("code", HOSTILE) in page.texts
    assert any(HOSTILE in text for tag, text in page.texts if tag == "title")


def test_an_answer_is_written_out_exactly() -> None:
    """Would catch white space of the template that slips into the answer."""
    page = render_page(demo_result(traces=(answer_trace(),)))
    found = re.search(r'<div class="answer">(.*?)</div>', page, re.DOTALL)
    assert found is not None
    assert re.sub(r"<[^>]*>", "", found[1]) == "The cat sat down."


def test_the_page_says_slower_and_shows_where_it_was_measured() -> None:
    """Would catch a page that hides a slow arm or the provenance of its numbers."""
    result = full_result("fixed k=3")
    page = Page(render_page(result))
    assert page.text_of("h1") == (
        "Against plain decoding on this machine: faster in 2 and slower in 2 of 4 comparisons."
    )
    assert "▼ slower" in page.text_of("span")
    facts = page.text_of("dd", "code")
    for fact in ("Made-up 9000", "0123456789abcdef", "ab" * 32, "cd" * 32, "2026-01-02 03:04:00+00:00", "0, 1"):
        assert fact in facts
    assert "(lossy)" in page.text_of("td")
    assert "Not exact: AMTP" in page.text_of("p")


def test_every_chart_is_there_when_there_is_something_to_draw() -> None:
    """Would catch a chart that silently vanishes: two for each temperature, cost, time and one answer."""
    assert Page(render_page(full_result())).tags.count("svg") == 2 * 2 + 2 + 1
    assert Page(render_page(EMPTY)).tags.count("svg") == 0
    assert Page(render_page(ONLY_PLAIN)).tags.count("svg") == 2


def test_arms_keep_their_colour_and_plain_is_grey() -> None:
    names = ["plain"] + [f"arm {index}" for index in range(NUM_ARM_COLOURS + 1)]
    kinds = arm_kinds(demo_result(runs=tuple(arm_run(name) for name in names), traces=()))
    assert kinds["plain"] == "plain"
    assert kinds["arm 0"] == kinds[f"arm {NUM_ARM_COLOURS}"] == "arm-0"
    styled = re.findall(r"^\.(arm-\d)|(?<=} )\.(arm-\d) \{ --colour", render_page(EMPTY), re.MULTILINE)
    assert len(styled) == NUM_ARM_COLOURS


def test_a_long_run_makes_a_small_page(benchmark: BenchmarkFixture) -> None:
    """Would catch marks that grow the page beyond what a phone opens at once: 300 kB for six answers of 256 tokens."""
    rounds = tuple(TraceRound(tokens=(" token", " token"), horizon=4, accepted=1) for _ in range(128))
    traces = tuple(answer_trace(arm, rounds=rounds) for arm in ("plain", "a", "b", "c", "d", "e"))
    page = benchmark(render_page, demo_result(traces=traces, cost_curve=cost_curve()))
    assert len(page.encode()) < 300_000
