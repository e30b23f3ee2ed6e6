"""Keys of trials, 32 hexadecimal digits, in short: as much of a key as tells it apart."""

import re
from collections.abc import Collection, Sequence
from typing import Final

from ablate.dashboards.data.formatting import join_words
from ablate.dashboards.data.user_errors import Unknown
from ablate.store import Store

SHORTEST: Final = 8
_MOST_TOLD: Final = 4


def shorten_keys(store: Store, keys: Sequence[str]) -> list[str]:
    """The first eight digits of every key, or as many as tell all from each other and from others of the campaign."""
    alike = store.sql(
        "SELECT trial FROM trial WHERE substr(trial, 1, $digits) IN (SELECT substr(unnest($keys), 1, $digits))",
        {"digits": SHORTEST, "keys": list(keys)},
    )["trial"]
    digits = _count_digits({*alike, *keys})
    return [key[:digits] for key in keys]


def _count_digits(keys: Collection[str]) -> int:
    return next(n for n in range(SHORTEST, 33) if len({key[:n] for key in keys}) == len(keys))


def key_of(store: Store, begins: str) -> str:
    """The key of the one trial that `begins` so. Raises Unknown if none does, or several do."""
    if not re.fullmatch(r"[0-9a-f]{1,32}", begins):
        raise Unknown(f"{begins!r} is no beginning of a key; name a run by the first of its 32 hexadecimal digits")
    keys = store.sql(
        "SELECT trial FROM trial WHERE starts_with(trial, $begins) ORDER BY trial LIMIT $most",
        {"begins": begins, "most": _MOST_TOLD + 1},
    )["trial"].to_list()
    if not keys:
        raise Unknown(f"no run of this campaign has a key that begins with {begins!r}")
    if len(keys) > 1:
        some = join_words([key[: _count_digits(keys)] for key in keys[:_MOST_TOLD]])
        raise Unknown(f"several runs have keys that begin with {begins!r}, such as {some}; say more digits")
    return str(keys[0])
