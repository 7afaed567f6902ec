"""``forerun generate``: prompt in, text out, streamed."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console

from forerun.cli.data import Dtype, Json, Target
from forerun.cli.drafter import pick_drafter
from forerun.cli.sampling import SamplingOptions, with_sampling_options
from forerun.engine import generate as start_generation
from forerun.errors import ForerunError
from forerun.horizons import HorizonPolicy
from forerun.models import EMBEDDED_TARGET, load_target
from forerun.recipes import RULES, rule_named


@with_sampling_options
def generate(
    prompt: Annotated[str, typer.Argument(help="A user message, or raw text with --raw; - reads standard input.")],
    sampling: SamplingOptions,
    target: Target = EMBEDDED_TARGET.name,
    dtype: Dtype = "float32",
    drafter: Annotated[
        str, typer.Option(help="auto (the shipped one), none, prompt-lookup, a drafter folder, or model:NAME.")
    ] = "auto",
    horizon: Annotated[str, typer.Option(help="Tokens to draft each round, or amtp.")] = "amtp",
    rule: Annotated[str, typer.Option(help=f"Which draft tokens stand: {', '.join(RULES)}.")] = "token-level",
    lossy: Annotated[bool, typer.Option("--lossy", help="Allow a rule that changes the output law.")] = False,
    max_new_tokens: Annotated[int, typer.Option(help="Cap on the answer, in tokens.")] = 256,
    stop: Annotated[list[str] | None, typer.Option(help="Text that ends the answer; repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Of every draw.")] = 0,
    raw: Annotated[bool, typer.Option(help="Take the prompt as it is, without the chat template.")] = False,
    optimize: Annotated[bool, typer.Option(help="Lay weights out for narrow verification passes.")] = True,
    as_json: Json = False,
) -> None:
    """Decode one prompt, with or without a drafter; exactly, unless a lossy rule is asked for."""
    sampling.check()
    policy, acceptance = _policy(horizon), rule_named(rule, lossy=lossy)
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise ForerunError("the prompt is empty; give some text")
    model = load_target(target, dtype=dtype, optimize=optimize)
    proposer = pick_drafter(drafter, model, optimize=optimize)
    if proposer is None and policy is None:
        policy = 0
    answer = start_generation(
        model,
        text,
        drafter=proposer,
        horizon=policy,
        sampling=sampling.params_for(model),
        max_new_tokens=max_new_tokens,
        stop=stop or (),
        raw=raw,
        seed=seed,
        rule=acceptance,
    )
    if not as_json:
        for piece in answer.stream():
            print(piece, end="", flush=True)
    totals = answer.totals
    if as_json:
        summary = {
            "text": answer.text,
            "token_ids": answer.token_ids,
            "finish": answer.finish,
            "exact": answer.exact,
            "tau": totals.tau,
            "tokens_per_second": totals.tokens_per_second,
            "rounds": totals.rounds,
            "rounds_without_drafts": totals.rounds_without_drafts,
            "drafted": totals.drafted,
            "accepted": totals.accepted,
            "emitted": totals.emitted,
        }
        print(json.dumps(summary, ensure_ascii=False))
    else:
        print()
        tau, speed = totals.tau, totals.tokens_per_second
        if tau is not None and speed is not None:
            Console(stderr=True).print(
                f"{totals.emitted + 1} tokens, {totals.rounds} rounds, tau {tau:.2f}, {speed:.1f} tokens/s "
                f"(prefill excluded), ended by {answer.finish}{'' if answer.exact else f', not exact: rule {rule}'}",
                style="dim",
            )


def _policy(horizon: str) -> int | HorizonPolicy | None:
    if horizon == "amtp":
        return None  # the engine's default: AMTP with a drafter, plain without
    try:
        number = int(horizon)
    except ValueError as error:
        raise ForerunError(f"horizon is {horizon!r}; give a number of tokens or amtp") from error
    if number < 0:
        raise ForerunError(f"horizon is {horizon}; give 0 (plain decoding) or more")
    return number
