"""Names of drafter architectures, and how a recipe's fields are changed."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError

from forerun.drafters import DrafterConfig
from forerun.errors import ForerunError
from forerun.models import TransformersTarget
from forerun.recipes.drafter import dflash2_for, dflash_for, dspark_for, mask_token_for, medusa_for
from forerun.recipes.eagle3 import eagle3_deepspec_for, eagle3_for
from forerun.recipes.parallel_heads import parallel_heads_for

DRAFTERS: dict[str, Callable[[TransformersTarget], DrafterConfig]] = {
    "dspark": dspark_for,
    "dspark-gated": lambda target: dspark_for(target, markov_head="gated"),
    "dspark-rnn": lambda target: dspark_for(target, markov_head="rnn"),
    "eagle3": eagle3_for,
    "eagle3-deepspec": eagle3_deepspec_for,
    "dflash": dflash_for,
    "dflash2": dflash2_for,
    "medusa": medusa_for,
    "parallel-heads": parallel_heads_for,
    "mask-token": mask_token_for,
    "mask-token-copy": lambda target: mask_token_for(target, form="copy"),
}


def drafter_config(name: str, target: TransformersTarget, settings: Sequence[str] = ()) -> DrafterConfig:
    """The recipe of that name for a target, with some fields changed.

    Args:
        name: of ``DRAFTERS``.
        target: to draft for.
        settings: ``field=value``, fields inside others with dots, values as JSON (words need no quotes).

    Raises:
        ForerunError: unknown name or field, whose neighbours are listed; or a value that does not fit.
    """
    if name not in DRAFTERS:
        near = difflib.get_close_matches(name, DRAFTERS) or list(DRAFTERS)
        raise ForerunError(f"unknown drafter {name!r}; did you mean {', '.join(near)}?")
    recipe = DRAFTERS[name](target)
    fields: dict[str, Any] = recipe.model_dump(mode="json")
    for setting in settings:
        _put(fields, setting)
    try:
        return type(recipe).model_validate_json(json.dumps(fields))
    except ValidationError as error:
        problem = error.errors()[0]
        raise ForerunError(f"--set {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error


def _put(fields: dict[str, Any], setting: str) -> None:
    path, separator, text = setting.partition("=")
    if not separator:
        raise ForerunError(f"--set {setting}: expected field=value")
    *outer, last = path.split(".")
    for name in outer:
        inner = fields.get(name)
        if not isinstance(inner, dict):
            raise ForerunError(
                f"--set {path}: there is no field {name!r} with fields inside; there are {_names(fields)}"
            )
        fields = inner
    if last not in fields:
        raise ForerunError(f"--set {path}: there is no field {last!r}; there are {_names(fields)}")
    try:
        fields[last] = json.loads(text)
    except json.JSONDecodeError:
        fields[last] = text


def _names(fields: dict[str, Any]) -> str:
    return ", ".join(fields)
