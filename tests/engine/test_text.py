"""Streamed text and stop strings, wherever the borders of tokens and blocks lie (C21, C23)."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.distributions import SamplingParams
from forerun.drafters import Drafter
from forerun.engine import Finish, Generation, generate
from forerun.engine.detokenizer import Detokenizer
from forerun.engine.stops import StopWatch
from forerun.models import TransformersTarget
from tests.support.drafters import reciting, wrong_at
from tests.support.horizons import Forced
from tests.support.targets import spelling_target
from tests.support.tokenizers import text_tokenizer

GREEDY = SamplingParams(temperature=0.0)
TOKENIZER = text_tokenizer()
VOCAB = 300
START = TOKENIZER.encode("#")[1]


def written(
    target: TransformersTarget,
    drafter: Drafter | None,
    horizon: int,
    *,
    stop: Sequence[str] = (),
    cap: int = 12,
) -> Generation:
    return generate(target, [START], drafter=drafter, horizon=horizon, sampling=GREEDY, max_new_tokens=cap, stop=stop)


def chunks(generation: Generation) -> list[str]:
    return list(generation.stream())


@pytest.mark.parametrize("horizon", range(6))
@pytest.mark.parametrize("stop", ["END", "z", "yE", "NDx", "D", "wzyENDxv", "ab"])
def test_a_stop_string_ends_the_answer_where_plain_decoding_ends(stop: str, horizon: int) -> None:
    """C21. Catches a stop that is only looked for in the last token or block, ids that are not cut, and text behind it.

    Every token is one letter, so the stop lies over block borders for some horizons and inside a block for others.
    """
    text = "wzyENDxv"
    target, ids = spelling_target(text, TOKENIZER, start=START)
    assert len(ids) == len(text)
    known = [START, *ids, *[ids[-1]] * 20]
    generation = written(target, reciting(known, vocab_size=VOCAB), horizon, stop=[stop])
    plain = written(target, None, 0, stop=[stop])

    end = text.find(stop)
    assert generation.text == plain.text == (text[:end] if end >= 0 else text + 4 * text[-1])
    assert generation.token_ids == plain.token_ids == known[1:][: end + len(stop) if end >= 0 else 12]
    assert generation.finish == plain.finish == (Finish.STOP_STRING if end >= 0 else Finish.LENGTH)
    assert generation.totals.emitted == len(generation.token_ids) - 1


def test_a_text_prompt_is_a_chat_message_unless_it_is_raw() -> None:
    """Catches a template that is applied twice or not at all, and a doubled BOS (C52)."""
    target, _ = spelling_target("aE", TOKENIZER, start=START)
    chat = generate(target, "hi #", max_new_tokens=1)
    assert chat.request.prompt_ids == tuple(TOKENIZER.chat([{"role": "user", "content": "hi #"}]))
    raw = generate(target, "hi #", raw=True, sampling=GREEDY, max_new_tokens=2)
    assert raw.request.prompt_ids == tuple(TOKENIZER.encode("hi #"))
    assert raw.request.prompt_ids.count(0) == 1


@pytest.mark.parametrize("stop", [["D", "END"], ["END", "D"], ["ND", "END", "Q"]])
def test_of_two_stop_strings_that_end_together_the_longer_is_cut(stop: list[str]) -> None:
    """Catches text that ends before the shorter one: the beginning of the longer stop string would be shown."""
    target, _ = spelling_target("aENDx", TOKENIZER, start=START)
    assert written(target, None, 0, stop=stop).text == "a"


def test_a_stream_never_shows_a_part_of_the_stop_string() -> None:
    """Catches text that is sent before it is clear that it is no stop; what turns out to be none comes later."""
    harmless, ids = spelling_target("aENx", TOKENIZER, start=START)
    assert chunks(written(harmless, None, 0, stop=["END"], cap=5)) == ["a", "", "", "ENx", "x"]
    ending, _ = spelling_target("aENDx", TOKENIZER, start=START)
    assert chunks(written(ending, None, 0, stop=["END"], cap=5)) == ["a", "", "", ""]
    whole = written(ending, reciting([START, *ids[:3]], vocab_size=VOCAB), 2, stop=["END"], cap=5)
    assert chunks(whole) == ["a", ""]


@pytest.mark.parametrize(("cap", "text"), [(3, "aEN"), (4, "aENx")])
def test_held_text_comes_out_when_the_answer_ends_otherwise(cap: int, text: str) -> None:
    """Catches letters that are lost because they might have become a stop string: at the cap, at the context's end."""
    target, ids = spelling_target("aENx", TOKENIZER, start=START)
    assert written(target, None, 0, stop=["END"], cap=cap).text == text
    shorter, _ = spelling_target("aENx", TOKENIZER, start=START, max_positions=cap + 1)
    generation = written(shorter, None, 0, stop=["END"], cap=100)
    assert (generation.text, generation.token_ids) == (text, ids[:cap])
    stopping, _ = spelling_target("aENx", TOKENIZER, start=START, stop_ids=(ids[cap - 1],))
    assert written(stopping, None, 0, stop=["END"], cap=100).text == text


@pytest.mark.parametrize("wrong", [0, 1, 2, 3])
@pytest.mark.parametrize("horizon", [0, 1, 2, 3, 5])
def test_streamed_characters_are_whole(horizon: int, wrong: int) -> None:
    """C23. Catches characters that are broken where a round ends, and an answer that ends inside an emoji."""
    text = "a\u00e9\U0001f642b"
    target, ids = spelling_target(text, TOKENIZER, start=START)
    known = [START, *ids, *[ids[-1]] * 20]
    drafter = wrong_at(known, lambda place: place == wrong, vocab_size=VOCAB)
    generation = written(target, drafter, horizon, cap=len(ids))
    assert generation.text == text
    assert not any("\ufffd" in chunk for chunk in chunks(generation))

    cut = written(target, drafter, horizon, cap=5)  # two of the emoji's four bytes
    assert cut.text == TOKENIZER.decode(ids[:5])
    assert sum("\ufffd" in chunk for chunk in chunks(cut)) == 1
    assert "\ufffd" in chunks(cut)[-1]


def test_feedback_is_cut_at_a_drafted_stop_string() -> None:
    """Catches labels of positions behind a stop string, and a look ahead that changes the answer's own text."""
    target, ids = spelling_target("aENDx", TOKENIZER, start=START)
    policy = Forced([4])
    drafter = wrong_at([START, *ids, *[ids[-1]] * 9], lambda place: place == 1, vocab_size=VOCAB)
    generation = generate(
        target, [START], drafter=drafter, horizon=policy, sampling=GREEDY, max_new_tokens=9, stop=["ND"]
    )
    assert (generation.text, len(generation.token_ids)) == ("aE", 4)
    # E (drafted wrong) N D x, then N (wrong) D x x, then D (wrong) x x
    assert [feedback.censored for feedback in policy.feedback] == [3, None, None]
    assert [feedback.accepted for feedback in policy.feedback] == [0, 0, 0]


LETTERS = TOKENIZER.encode("ab\u00e9#")[1:]


@given(
    ids=st.lists(st.sampled_from(LETTERS), min_size=1, max_size=12),
    stops=st.lists(st.text("ab#", min_size=1, max_size=3), max_size=2),
)
def test_the_watch_agrees_with_decoding_everything_after_every_token(ids: list[int], stops: list[str]) -> None:
    """The oracle knows no pieces: it decodes all tokens so far and looks for a stop string."""
    watch = StopWatch(
        stop_ids=frozenset(),
        stop_strings=tuple(stops),
        max_new_tokens=len(ids),
        detokenizer=Detokenizer(TOKENIZER.decode),
    )
    assert watch.tokens_until_stop(ids) == expected_end(ids, stops)[0]
    shown = ""
    for count, token_id in enumerate(ids, start=1):
        pushed = watch.push(token_id)
        shown += pushed.text
        end, text = expected_end(ids, stops)
        assert text.startswith(shown)
        assert (pushed.finish is not None) == (count == end)
        if count == end:
            assert shown == text
            assert pushed.finish is (Finish.STOP_STRING if hit(ids[:count], stops) is not None else Finish.LENGTH)
            break


def hit(ids: list[int], stops: list[str]) -> int | None:
    places = [TOKENIZER.decode(ids).find(stop) for stop in stops]
    return min((place for place in places if place >= 0), default=None)


def expected_end(ids: list[int], stops: list[str]) -> tuple[int, str]:
    """Tokens that are used, and their text."""
    for count in range(1, len(ids) + 1):
        place = hit(ids[:count], stops)
        if place is not None:
            return count, TOKENIZER.decode(ids[:count])[:place]
    return len(ids), TOKENIZER.decode(ids)
