"""What a policy may ask an engine to look at before drafting; whatever nobody asks for is not computed."""

from __future__ import annotations

from enum import Enum


class Signal(Enum):
    """Optional parts of a ``RoundContext``."""

    TARGET_LAW = "target law"
    """Entropy, top probability and margin of the law behind the last committed token; whether that token repeats."""
    TOKEN_CLASS = "token class"
    """What kind of text the last committed token is."""
    SUFFIX_MATCH = "suffix match"
    """How long the end of the context is that stands in the context before."""
    HIDDEN_STATE = "hidden state"
    """A projection of the target's hidden state behind the last committed token."""
    DRAFT_MARGINS = "draft margins"
    """Top-2 margins of the draft laws, where these are known before anything is sampled from them."""


class TokenClass(Enum):
    """Kinds of tokens by their text; what stands first decides."""

    WORD = "word"
    """Begins a word (white space, then a letter)."""
    PART = "part"
    """Goes on with a word."""
    DIGIT = "digit"
    """A digit."""
    SPACE = "space"
    """Nothing but white space, line ends included."""
    SYMBOL = "symbol"
    """Punctuation and the signs of programs and formulas."""
    SPECIAL = "special"
    """No text at all: control tokens, ends of answers."""
