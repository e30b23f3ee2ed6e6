"""Whether the results of a grid were made by one version of its code."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from runners.provenance.code import made_by
from store.files.layout import Layout
from store.files.trial_status import trial_state

if TYPE_CHECKING:
    from store.store import Store

_UNKNOWN = {"core": "unknown"}


def mixed_sources(layout: Layout, trials: Iterable[str]) -> list[str]:
    """The sources that differ between finished trials, or changed while one was trained; sorted.

    Softmax and SSA run different sources and are one version; two versions of one source are not.
    """
    versions: dict[str, set[str]] = {}
    for trial in trials:
        state = trial_state(layout, trial)
        done = [found.attempt for found in state.attempts if found.end and found.end.get("status") == "ok"]
        for sources in made_by(state, done[-1]) if done else ():
            for name, version in (_UNKNOWN if sources is None else sources).items():
                versions.setdefault(name, set()).add(version)
    return sorted(name for name, found in versions.items() if len(found) > 1)


def warn_of_mixtures(store: "Store", grids: Iterable[str], told: Callable[[str], None]) -> None:
    """Tell, in a sentence per grid, which grids mix code: their verdicts compare more than operators."""
    for grid in grids:
        trials = store.sql("SELECT trial FROM grid_trial WHERE grid = $grid", {"grid": grid})["trial"].to_list()
        mixed = mixed_sources(store.layout, trials)
        if mixed:
            told(
                f"ablate: the results of {grid} mix versions of the code ({', '.join(mixed)}), so differences may not "
                "be the operators'; `ablate run SPEC --again` trains those of other code again"
            )
