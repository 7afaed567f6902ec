"""transformers' own bars and notices, switched off while forerun shows its own."""

from __future__ import annotations

import logging as standard_logging
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence progress bars and anything below an error for the length of the block, then restore both.

    The hub client's notices go too: off-line it would announce every retry.
    """
    hub = standard_logging.getLogger("huggingface_hub")
    hub_level = hub.level
    hub.setLevel(standard_logging.ERROR)
    verbosity = logging.get_verbosity()
    had_bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        hub.setLevel(hub_level)
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()
