"""Trees whose shape a learning policy chooses keep the law; the same policy with a look at the drafts does not.

As for chains, the policy's state travels through the enumeration as JSON, so every branch continues from what it
really learned: from rounds whose cost depends on their shape, and from what verification showed of depths it tried.
"""

import json
import random
from collections import defaultdict
from collections.abc import Hashable
from functools import cache

import pytest

from forerun.distributions import SamplingParams
from forerun.horizons import (
    Choice,
    CostSurface,
    DraftTime,
    FeatureLevel,
    PassTime,
    RoundContext,
    RoundFeedback,
    TreeAMTP,
    num_nodes,
)
from forerun.horizons.evidence import evidence, survival_evidence
from forerun.verification import Candidates, TreeOutcome, TreeTokenLevel
from tests.exactness.enumerate import Tokens, chain_law, distance
from tests.exactness.tables import plain_model, processed, random_logits
from tests.exactness.trees import Branching, Nodes, Shapes, TreeRound, Trees, tree_generation_law, verified
from tests.support.speed import without_shape_checks

TOLERANCE = 1e-12
CLEARLY_BIASED = 1e-3
LIMIT, MAX_NODES = 2, 4
PROMPT: Tokens = (1, 1, 0)
PLAIN = SamplingParams()
TARGET_LOGITS = random_logits(21, 2, 2)
TARGET, DRAFT = processed(TARGET_LOGITS, PLAIN), processed(random_logits(22, 2, 2), PLAIN)
COSTS = CostSurface.from_profile(
    [PassTime(width=w, context_length=4, batch_size=1, seconds=(1.0 + 0.2 * w,)) for w in (1, 3, 5)],
    [DraftTime(tokens=depth, seconds=(0.5 * depth,)) for depth in (1, 2)],
)


def new_policy() -> TreeAMTP:
    """Learns fast, and its coin comes up often."""
    return TreeAMTP(
        max_nodes=MAX_NODES, max_children=2, costs=COSTS, learning_rate=0.8, epsilon=0.5, warmup_rounds=0,
        features=FeatureLevel.F2,
    )  # fmt: skip


def resumed(state: Hashable) -> TreeAMTP:
    policy = new_policy()
    policy.load_state_dict(json.loads(str(state)))
    return policy


def saved(policy: TreeAMTP) -> str:
    return json.dumps(policy.state_dict())


def context_before(tokens: Tokens, top_prob: float | None = None) -> RoundContext:
    """What the policy may see: the target's law behind the last committed token, unless something else slips in."""
    law = TARGET(tokens[:-1])
    return RoundContext(
        limit=LIMIT,
        context_length=len(tokens),
        generated=len(tokens) - len(PROMPT),
        temperature=1.0,
        target_entropy=float(law.entropy()),
        target_top_prob=float(law.dense().max()) if top_prob is None else top_prob,
    )


@cache
def choices(state: Hashable, context: RoundContext) -> list[tuple[Choice, float]]:
    """By enumeration of the coin: a chain, a doubled chain, and twice the plan."""
    policy = resumed(state)
    return [(policy.propose(context, uniform=quarter / 4), 0.25) for quarter in range(4)]


def policy(context: Tokens, state: Hashable) -> dict[Branching, float]:
    """Shapes with their probabilities."""
    law: defaultdict[Branching, float] = defaultdict(float)
    for choice, weight in choices(state, context_before(context)):
        assert choice.branching is not None
        law[choice.branching] += weight
    return law


def told_by(choice: Choice, context: RoundContext, outcome: TreeOutcome) -> RoundFeedback:
    """As the engine tells it; seconds depend on the shape and on what was discarded, which is allowed."""
    assert choice.branching is not None
    nodes, depth = num_nodes(choice.branching), len(choice.branching)
    surprise = 0.1 * float(outcome.overlaps.sum())
    return RoundFeedback(
        choice=choice,
        context=context,
        accepted=len(outcome.path),
        accept_probabilities=tuple(outcome.prefix_weights.tolist()),
        overlaps=tuple(outcome.overlaps.tolist()),
        seconds=1.3 + 0.2 * nodes + 0.5 * depth + surprise,
        draft_seconds=0.5 * depth,
        verify_seconds=1.2 + 0.2 * nodes + surprise,
        verify_width=1 + nodes,
        tree_depth=depth,
    )


def learn(state: Hashable, told: TreeRound) -> str:
    """The policy after a round."""
    context = context_before(told.context)
    choice = next(each for each, _ in choices(state, context) if each.branching == told.branching)
    after = resumed(state)
    after.observe(told_by(choice, context, told.outcome))
    return saved(after)


def missed(shapes: Shapes, candidates: Candidates, num_tokens: int) -> float:
    """Distance of the generation from the target's law."""
    law = tree_generation_law(
        Trees(TARGET, DRAFT, candidates), TreeTokenLevel(), shapes, prompt=PROMPT, num_tokens=num_tokens
    )
    return distance(law, chain_law(plain_model(TARGET_LOGITS, PLAIN), PROMPT, num_tokens))


@cache
def taught() -> str:
    """A state that has learned: drafts stand where ``target_top_prob`` is 1, and only there."""
    learner, rng = new_policy(), random.Random(0)
    for _ in range(200):
        sure = rng.random() < 0.5  # by chance, so that the history does not tell
        context = context_before(PROMPT, top_prob=float(sure))
        choice = learner.propose(context, uniform=0.3)
        tried = LIMIT if sure else 1
        learner.observe(
            RoundFeedback(
                choice=choice,
                context=context,
                accepted=LIMIT if sure else 0,
                accept_probabilities=(float(sure),) * tried,
                overlaps=(float(sure),) * tried,
                seconds=3.0,
                draft_seconds=1.0,
                verify_seconds=2.0,
                verify_width=5,
                tree_depth=LIMIT,
            )
        )
    return saved(learner)


@pytest.mark.parametrize(
    ("candidates", "num_tokens"),
    [
        (Candidates.DETERMINISTIC, 2),
        (Candidates.WITH_REPLACEMENT, 2),
        pytest.param(Candidates.WITH_REPLACEMENT, 3, marks=pytest.mark.slow),
        pytest.param(Candidates.WITHOUT_REPLACEMENT, 3, marks=pytest.mark.slow),
    ],
)
def test_shapes_that_are_learned_are_exact(candidates: Candidates, num_tokens: int) -> None:
    """Catches a shape that depends on this round's drafts through state, coin, costs or features."""
    with without_shape_checks():
        for state in (saved(new_policy()), taught()):
            assert missed(Shapes(policy, state, learn), candidates, num_tokens) <= TOLERANCE


def test_many_shapes_are_chosen() -> None:
    """A policy that never varies would pass the test above without testing anything."""
    contexts = [(*PROMPT, 0), (*PROMPT, 1), (*PROMPT, 1, 1)]
    shapes = {
        shape for state in (saved(new_policy()), taught()) for tokens in contexts for shape in policy(tokens, state)
    }
    assert len(shapes) >= 3, shapes


def after_a_look(context: Tokens, nodes: Nodes) -> Branching:
    """Wiring bug: ``target_top_prob`` is filled with what the draft's first token says."""
    leaked = context_before(context, top_prob=float(nodes[0][1]))
    shape = resumed(taught()).propose(leaked, uniform=0.99).branching
    assert shape is not None
    return shape


@pytest.mark.parametrize("candidates", Candidates)
def test_a_shape_that_looks_at_the_drafts_is_red(candidates: Candidates) -> None:
    """The whole tree is drawn and the shape decides, knowing it, what is verified; a top-k has nothing to select on."""
    with without_shape_checks():
        found = missed(Shapes(lambda _, __: {(2, 1): 1.0}, cut=after_a_look), candidates, 2)
    assert (found > CLEARLY_BIASED) == (candidates is not Candidates.DETERMINISTIC), found


@pytest.mark.parametrize("soft", [True, False])
def test_a_tree_teaches_about_tried_depths_and_no_others(soft: bool) -> None:
    """Over all rounds: E[weight] is how often a depth is tried, E[weight x label] how often none stands there.

    Catches evidence of depths that the path did not reach, and weights that count a depth's probability twice.
    """
    context = context_before(PROMPT)
    choice = Choice(horizon=2, planned=2, explored=False, propensities=(1.0, 1.0), branching=(2, 1))
    tried, failed, weights, rejected, survived = ([0.0, 0.0] for _ in range(5))
    trees = Trees(TARGET, DRAFT, Candidates.WITH_REPLACEMENT)
    for _, outcome, probability in verified(trees, TreeTokenLevel(), (2, 1), PROMPT):
        reached = len(outcome.path)
        for depth in range(min(reached + 1, 2)):
            tried[depth] += probability
            failed[depth] += probability * (reached == depth)
        items = evidence(told_by(choice, context, outcome), soft=soft, importance_clip=1.0)
        for depth, item in enumerate(items.items()):
            weights[depth] += probability * item.weight
            rejected[depth] += probability * item.weight * item.label
        direct = survival_evidence(told_by(choice, context, outcome), soft=soft, importance_clip=1.0)
        assert direct.weights == [1.0, 1.0]  # a survival is known of every depth, 0 behind a rejection
        for depth, label in enumerate(direct.labels):
            survived[depth] += probability * label
    assert failed[0] > 0.01 and 0.01 < failed[1] < tried[1] < 0.99
    assert weights == pytest.approx(tried, abs=TOLERANCE)
    assert rejected == pytest.approx(failed, abs=TOLERANCE)
    assert survived == pytest.approx([before - lost for before, lost in zip(tried, failed, strict=True)], abs=TOLERANCE)
