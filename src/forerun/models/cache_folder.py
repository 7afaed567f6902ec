"""Where downloaded and converted models live on the user's machine."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """``$FORERUN_CACHE``, else ``$XDG_CACHE_HOME/forerun``, else ``~/.cache/forerun``. Not created here."""
    explicit = os.environ.get("FORERUN_CACHE")
    if explicit:
        return Path(explicit).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache") / "forerun"
