"""``forerun generate``: prompts in, text out, streamed."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from forerun.cli.data import Dtype, Json, Target
from forerun.cli.drafter import pick_drafter
from forerun.cli.sampling import SamplingOptions, with_sampling_options
from forerun.cli.tree import pick_tree_drafter, read_tree, tree_policy
from forerun.drafters import Drafter, TreeDrafter
from forerun.engine import BatchGeneration, Generation, generate_batch
from forerun.errors import ForerunError
from forerun.evaluation.cost_profile import read_profile
from forerun.horizons import HorizonPolicy
from forerun.models import EMBEDDED_TARGET, load_target
from forerun.recipes import RULES, TREE_RULES, horizon_named, rule_named, tree_rule_named
from forerun.verification import Rule, TreeRule


@with_sampling_options
def generate(
    prompts: Annotated[
        list[str],
        typer.Argument(metavar="PROMPT...", help="User messages, or raw text with --raw; - reads standard input."),
    ],
    sampling: SamplingOptions,
    target: Target = EMBEDDED_TARGET.name,
    dtype: Dtype = "float32",
    drafter: Annotated[
        str,
        typer.Option(
            help="auto (the shipped one), none, prompt-lookup, suffix-lookup, a drafter folder, or model:NAME."
        ),
    ] = "auto",
    draft_vocab: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|SIZE|FILE:SIZE",
            help="Tokens that --drafter model:NAME drafts: those of a text file, the SIZE most frequent of it, or the "
            "SIZE lowest ids. The rest of its head is not computed.",
        ),
    ] = None,
    tree: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPE",
            help="Draft trees. For model:NAME children by depth, 4x2x1; for an EAGLE-3 folder dynamic, or "
            "DEPTHxCHILDREN:NODES; for both a number of nodes: amtp then chooses depth and widths in each round.",
        ),
    ] = None,
    tree_candidates: Annotated[
        str | None, typer.Option(help="Siblings of a tree: top-k (the default), or drawn: distinct or independent.")
    ] = None,
    horizon: Annotated[
        str, typer.Option(help="Tokens to draft each round, or a policy: amtp, or one of docs/rivals.md.")
    ] = "amtp",
    costs: Annotated[
        Path | None, typer.Option(help="For the horizon policy: costs that forerun profile wrote.")
    ] = None,
    rule: Annotated[
        str, typer.Option(help=f"Which draft tokens stand: {', '.join(RULES)}; of trees: {', '.join(TREE_RULES)}.")
    ] = "token-level",
    lossy: Annotated[
        bool, typer.Option("--lossy", help="Allow a rule or horizon that changes the output law.")
    ] = False,
    max_new_tokens: Annotated[int, typer.Option(help="Cap on an answer, in tokens.")] = 256,
    num_return_sequences: Annotated[int, typer.Option(help="Answers for each prompt.")] = 1,
    max_batch: Annotated[int, typer.Option(help="Answers decoded together; the others wait.")] = 16,
    stop: Annotated[list[str] | None, typer.Option(help="Text that ends an answer; repeatable.")] = None,
    logprobs: Annotated[
        int | None, typer.Option(help="With --json: log-probabilities of the tokens, and of so many likeliest ones.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of every draw.")] = 0,
    raw: Annotated[bool, typer.Option(help="Take prompts as they are, without the chat template.")] = False,
    optimize: Annotated[bool, typer.Option(help="Lay weights out for narrow verification passes.")] = True,
    as_json: Json = False,
) -> None:
    """Decode prompts, with or without a drafter; exactly, unless a lossy rule is asked for.

    One answer is streamed. Several are decoded together and printed one after the other; --json prints a line for each.
    """
    sampling.check()
    acceptance: Rule | TreeRule
    if tree is None:
        shape, acceptance = None, rule_named(rule, lossy=lossy)
        policy = horizon_named(horizon, rule=acceptance, lossy=lossy)
        if tree_candidates is not None:
            raise ForerunError("--tree-candidates are the siblings of a tree; add --tree")
    else:
        shape, acceptance = read_tree(tree), tree_rule_named(rule)
        policy = tree_policy(shape, horizon, rule=acceptance, lossy=lossy)
    if logprobs is not None and not as_json:
        raise ForerunError("--logprobs are part of the JSON line; add --json")
    texts = [sys.stdin.read() if prompt == "-" else prompt for prompt in prompts]
    if not all(text.strip() for text in texts):
        raise ForerunError("the prompt is empty; give some text")
    model = load_target(target, dtype=dtype, optimize=optimize)
    proposer: Drafter | TreeDrafter | None
    if shape is None:
        proposer = pick_drafter(drafter, model, optimize=optimize, draft_vocab=draft_vocab)
    else:
        proposer = pick_tree_drafter(
            drafter, shape, tree_candidates or "top-k", model, optimize=optimize, draft_vocab=draft_vocab
        )
    if costs is not None:
        if not isinstance(policy, HorizonPolicy) or not isinstance(proposer, Drafter):
            raise ForerunError("--costs are for a horizon policy with a drafter of chains; leave them out")
        table = read_profile(costs, target_name=model.name, drafter_name=proposer.name)
        policy = horizon_named(horizon, rule=acceptance, costs=table, lossy=lossy)
    if proposer is None and isinstance(policy, HorizonPolicy):
        policy = 0  # plain decoding leaves a policy nothing to choose
    batch = generate_batch(
        model,
        texts,
        num_return_sequences=num_return_sequences,
        max_batch=max_batch,
        drafter=proposer,
        horizon=policy,
        sampling=sampling.params_for(model),
        max_new_tokens=max_new_tokens,
        stop=stop or (),
        raw=raw,
        logprobs=logprobs,
        seed=seed,
        rule=acceptance,
    )
    if as_json:
        for answer in batch.answers:
            print(json.dumps(_summary(answer), ensure_ascii=False))
        return
    if len(batch.answers) == 1:
        for piece in batch.answers[0].stream():
            print(piece, end="", flush=True)
        print()
    else:
        _print_in_order(batch, texts)
    _print_totals(batch, rule, horizon)


def _summary(answer: Generation) -> dict[str, Any]:
    totals, logprobs = answer.totals, answer.logprobs
    summary = {
        "text": answer.text,
        "token_ids": answer.token_ids,
        "finish": answer.finish,
        "exact": answer.exact,
        "tau": totals.tau,
        "tokens_per_second": totals.tokens_per_second,
        "rounds": totals.rounds,
        "rounds_without_drafts": totals.rounds_without_drafts,
        "rounds_beyond_drafter": totals.rounds_beyond_drafter,
        "rounds_cut_short": totals.rounds_cut_short,
        "drafted": totals.drafted,
        "accepted": totals.accepted,
        "emitted": totals.emitted,
    }
    if logprobs is not None:
        summary["logprobs"] = [asdict(each) for each in logprobs]
    return summary


def _print_in_order(batch: BatchGeneration, texts: list[str]) -> None:
    """Whole answers under their prompts, with a bar while they are being written."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[tokens]} tokens"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Decoding", total=None, tokens=0)
        tokens = 0
        for _, record in batch:
            tokens += len(record.token_ids)
            progress.update(task, tokens=tokens)
    sequences = len(batch.answers) // len(texts)
    for index, text in enumerate(batch.texts):
        first_line = texts[index // sequences].strip().splitlines()[0]
        print(f"[{index + 1}] {first_line}\n{text}\n")


def _print_totals(batch: BatchGeneration, rule: str, horizon: str) -> None:
    totals = batch.totals
    tau, speed = totals.tau, totals.tokens_per_second
    if tau is None or speed is None:
        return
    beyond = totals.rounds_beyond_drafter
    limit = f", {beyond} rounds without drafts beyond the drafter's last position" if beyond else ""
    lossy = "" if batch.exact else f", not exact: rule {rule}, horizon {horizon}"
    endings = ", ".join(dict.fromkeys(str(answer.finish) for answer in batch.answers))
    Console(stderr=True).print(
        f"{totals.emitted + len(batch.answers)} tokens, {totals.rounds} rounds, tau {tau:.2f}, {speed:.1f} tokens/s "
        f"(prefill excluded), ended by {endings}{limit}{lossy}",
        style="dim",
    )
