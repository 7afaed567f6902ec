"""The sampling options of every command that decodes, once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, final, get_type_hints

import typer

from forerun.distributions import SamplingParams
from forerun.errors import ForerunError
from forerun.models import TransformersTarget


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """What the user wrote, in the order in which it is applied."""

    logit_bias: Annotated[
        list[str] | None, typer.Option(help="Added to the logit of a token, ID=VALUE; -inf forbids it; repeatable.")
    ] = None
    repetition_penalty: Annotated[
        float, typer.Option(help="Divides positive logits of tokens in prompt and answer; 1 is off.")
    ] = 1.0
    presence_penalty: Annotated[
        float, typer.Option(help="Subtracted from logits of tokens in the answer; 0 is off.")
    ] = 0.0
    frequency_penalty: Annotated[
        float, typer.Option(help="Subtracted for each occurrence in the answer; 0 is off.")
    ] = 0.0
    bad_word: Annotated[
        list[str] | None,
        typer.Option(help="Text whose tokens may not be said in a row, with or without a space before; repeatable."),
    ] = None
    min_new_tokens: Annotated[int, typer.Option(help="No stop token before the answer has this many tokens.")] = 0
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 1.0
    top_k: Annotated[int | None, typer.Option(help="Keep the k most likely tokens.")] = None
    top_p: Annotated[float, typer.Option(help="Keep the smallest set with this mass.")] = 1.0
    min_p: Annotated[float, typer.Option(help="Drop tokens below this share of the largest.")] = 0.0
    typical_p: Annotated[
        float, typer.Option(help="Keep the tokens of most usual information content that reach this mass; 1 is off.")
    ] = 1.0

    def check(self) -> None:
        """Find mistakes before a target is loaded.

        Raises:
            ForerunError: a value is outside its range or cannot be read.
        """
        self._without_bad_words()

    def _without_bad_words(self) -> SamplingParams:
        return SamplingParams(
            logit_bias=dict(map(_bias, self.logit_bias or ())),
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            min_new_tokens=self.min_new_tokens,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            typical_p=self.typical_p,
        )

    def params_for(self, target: TransformersTarget) -> SamplingParams:
        """With the tokens that the target's tokenizer makes of the bad words.

        Raises:
            ForerunError: as ``check``, or a bad word is empty.
        """
        words = [text.strip() for text in self.bad_word or ()]
        if not all(words):
            raise ForerunError("a bad word is empty; give some text")
        spellings = [target.tokenizer.encode_inner(text) for word in words for text in (word, f" {word}")]
        return replace(self._without_bad_words(), bad_words=list(dict.fromkeys(map(tuple, spellings))))


def with_sampling_options(command: Callable[..., None]) -> Callable[..., None]:
    """Shows the fields of ``SamplingOptions`` as options of a command that takes them as ``sampling``."""
    hints = get_type_hints(SamplingOptions, include_extras=True)
    options = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(SamplingOptions)
    ]

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        sampling = SamplingOptions(**{option.name: given.pop(option.name) for option in options})
        command(**given, sampling=sampling)

    signature = inspect.signature(command, eval_str=True)
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in signature.parameters.items()
        if name != "sampling"
    ]
    vars(with_options)["__signature__"] = signature.replace(parameters=[*own, *options])
    return with_options


def _bias(text: str) -> tuple[int, float]:
    token_id, _, value = text.partition("=")
    try:
        return int(token_id), float(value)
    except ValueError as error:
        raise ForerunError(f"expected ID=VALUE (a token id and a number), got {text!r}") from error
