"""The command `effects`: main effects and interactions of a grid's axes."""

from typing import TYPE_CHECKING, Any

from runners.cli.options import GRID_FLAGS, ONE_GRID, Flag
from runners.output import average_of, describe_measure, format_count, say, write, write_frame, write_json, write_table

if TYPE_CHECKING:
    import polars as pl

    from store.statistics import Factorial

"""Most contrasts of a half-normal plot that a terminal gets; JSON and CSV have all."""


def effects(*, of: GRID_FLAGS = ONE_GRID, interactions: Flag = False) -> int:
    """Show the effect of each axis, with seeds as blocks: F tests, effect sizes, means. docs/factorial.md.

    JSON has tests and means, CSV the tests.

    Parameters
    ----------
    interactions
        Test also whether what one axis does depends on another.
    """
    from store.analysis.effects import analysis

    with of.open() as (store, name, warnings):
        header = store.grid(name)
        found = analysis(store, name, interactions=interactions)
    if of.as_json:
        data = {"terms": found.terms.rows(named=True), "means": found.means.rows(named=True)}
        write_json("effects", {**data, "runs": found.runs, "noise": found.noise}, [*warnings, *found.notes])
    elif of.as_csv:
        write_frame("effects", found.terms, as_json=False, as_csv=True)
    else:
        write(
            f"{describe_measure(header)} on the {header['measure']['scale']} scale, {format_count(found.runs, 'run')}"
        )
        _write_tests(found, header["measure"])
        _write_means(found.means, header["measure"])
        for note in found.notes:
            say(f"ablate: {note}")
    return 0


def _write_tests(found: "Factorial", measure: dict[str, Any]) -> None:
    if found.terms.is_empty():
        write("no axis of this grid varies")
        return
    headings = ["axis", "df", "F", "p (Holm)", "partial omega²", _level(1 - 2 * measure["alpha"]), "to", "note"]
    columns = ["term", "df", "f", "p_holm", "omega_squared", "omega_low", "omega_high", "note"]
    write_table(headings, [tuple(map(_short, row)) for row in found.terms.select(columns).rows()])
    if found.noise is not None:
        freedom = format_count(found.terms["df_error"][0], "degree of freedom", "degrees of freedom")
        write(f"noise of a run: standard deviation {found.noise:.3g} on this scale, {freedom}")


def _write_means(means: "pl.DataFrame", measure: dict[str, Any]) -> None:
    if means.is_empty():
        return
    write("")
    headings = ["axis", "level", "runs", average_of(measure), _level(1 - measure["alpha"]), "to", "note"]
    write_table(headings, [tuple(map(_short, row)) for row in means.rows()])


def _level(share: float) -> str:
    return f"{100 * share:g} % from"


def _short(value: object) -> object:
    return float(f"{value:.3g}") if isinstance(value, float) else value
