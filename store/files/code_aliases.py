"""Code of an earlier release that computes the same numbers under another name.

`code_aliases.json` has one row per source file: old name, old hash, new name, new hash. A result that the old file made
counts as made by the new file, as long as the new file has that hash. `python tests/code_aliases.py` writes it.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files


@cache
def _aliases() -> dict[tuple[str, str], tuple[str, str]]:
    rows = json.loads(files("store.files").joinpath("code_aliases.json").read_text(encoding="utf-8"))
    return {(old, old_hash): (new, new_hash) for old, old_hash, new, new_hash in rows}


def current_sources(sources: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return recorded `sources` (name to hash) by names and hashes of the present release; no parts of the core."""
    if sources is None:
        return None
    found = {name: _aliases().get((name, value), (name, value)) for name, value in sources.items()}
    return dict(alias for name, alias in found.items() if alias[0] != "core" or name == "core")


def current_core(code: str | None) -> str | None:
    """Return a recorded hash of the core as the present release computes it; None stays None."""
    return None if code is None else _aliases().get(("core", code), ("core", code))[1]
