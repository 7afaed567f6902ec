"""What kind of text each token of a vocabulary is."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from forerun.horizons import TokenClass
from forerun.models import Tokenizer

_TABLES: WeakKeyDictionary[Tokenizer, dict[int, TokenClass]] = WeakKeyDictionary()


def class_of_token(tokenizer: Tokenizer, token_id: int) -> TokenClass:
    """The class of one token; each is looked at once."""
    table = _TABLES.setdefault(tokenizer, {})
    if token_id not in table:
        table[token_id] = class_of_text(tokenizer.decode([token_id]))
    return table[token_id]


def class_of_text(text: str) -> TokenClass:
    r"""The class by the first letter that is not white space.

    Example:
        >>> [class_of_text(text).value for text in (" the", "ing", " 7", "\n", "):", "")]
        ['word', 'part', 'digit', 'space', 'symbol', 'special']
    """
    stripped = text.strip()
    if not stripped:
        return TokenClass.SPACE if text else TokenClass.SPECIAL
    first = stripped[0]
    if first.isdigit():
        return TokenClass.DIGIT
    if first.isalpha():
        return TokenClass.PART if text[0] == first else TokenClass.WORD
    return TokenClass.SYMBOL
