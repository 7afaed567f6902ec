"""Times at the vocabulary of the embedded model; `make bench` shows them, `make test` only runs them once."""

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from forerun.distributions import DenseLaw, Law, PointLaw, Purpose, Streams
from forerun.recipes import RULES, rule_named
from forerun.verification import Proposal

VOCAB_SIZE = 49152
HORIZON = 8
CASES = [
    (name, kind) for name in RULES for kind in ("sampled", "one-hot", "greedy") if name != "greedy" or kind == name
]


@pytest.mark.benchmark(group="verification, horizon 8, vocabulary 49152")
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_verification(benchmark: BenchmarkFixture, name: str, kind: str) -> None:
    logits = torch.randn(HORIZON + 1, VOCAB_SIZE, generator=torch.Generator().manual_seed(0)) * 3.0
    numbers = Streams(0).uniforms(Purpose.ACCEPT, 0, HORIZON)
    target: Law = DenseLaw.from_log_weights(logits)
    draft: Law = DenseLaw.from_log_weights(logits[:-1] + 0.3)
    if kind != "sampled":
        draft = PointLaw(logits[:-1].argmax(-1), VOCAB_SIZE)
    if kind == "greedy":
        target = PointLaw(logits.argmax(-1), VOCAB_SIZE)
    proposal = Proposal(draft.sample(uniforms=numbers), draft)
    verify = rule_named(name, lossy=True).verify
    assert benchmark(verify, target, proposal, uniforms=numbers).accepted <= HORIZON
