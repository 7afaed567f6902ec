"""An answer as pieces of text, token by token, with who wrote each."""

from __future__ import annotations

from typing import Any, final

from forerun.engine import Generation, RoundRecord
from forerun.engine.detokenizer import Detokenizer
from forerun.models import Tokenizer


@final
class Tracer:
    """Turns records into the trace format of results; one per answer.

    Args:
        tokenizer: of the target.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._detokenizer = Detokenizer(tokenizer.decode)

    def opening(self, answer: Generation) -> str:
        """Text of the token that the prefill emitted."""
        return self._detokenizer.push(answer.prefill.token_id)

    def round(self, record: RoundRecord) -> dict[str, Any]:
        """One round."""
        return {
            "tokens": [self._detokenizer.push(token_id) for token_id in record.token_ids],
            "horizon": record.drafted,
            "accepted": record.accepted_emitted,
        }
