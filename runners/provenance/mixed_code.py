"""Detects grids whose results were made by several versions of the code."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from runners.provenance.code import made_by
from store.files.layout import Layout
from store.files.trial_status import trial_state

if TYPE_CHECKING:
    from store.store import Store

_UNKNOWN = {"core": "unknown"}


def mixed_sources(layout: Layout, trials: Iterable[str]) -> list[str]:
    """List sources with several versions among finished trials, sorted.

    Different operators use different sources; only versions of the same source count.
    """
    versions: dict[str, set[str]] = {}
    for trial in trials:
        state = trial_state(layout, trial)
        done = [found.attempt for found in state.attempts if found.end and found.end.get("status") == "ok"]
        for sources in made_by(state, done[-1]) if done else ():
            for name, version in (_UNKNOWN if sources is None else sources).items():
                versions.setdefault(name, set()).add(version)
    return sorted(name for name, found in versions.items() if len(found) > 1)


def find_mixtures(store: "Store", grids: Iterable[str]) -> Iterator[str]:
    """Yield a warning about each grid that mixes code, since its comparisons show more than operators."""
    for grid in grids:
        trials = store.sql("SELECT trial FROM grid_trial WHERE grid = $grid", {"grid": grid})["trial"].to_list()
        mixed = mixed_sources(store.layout, trials)
        if mixed:
            yield (
                f"the results of {grid} mix versions of the code ({', '.join(mixed)}), so differences may not be the "
                "operators'; `ablate run SPEC --again` trains those of other code again"
            )
