"""The command `effects`: main effects and interactions of a grid's axes."""

from typing import TYPE_CHECKING, Any

from runners.cli.options import GRID_FLAGS, ONE_GRID, Flag
from runners.output import average_of, describe_measure, format_count, say, write, write_frame, write_json, write_table

if TYPE_CHECKING:
    import polars as pl

    from store.statistics import Factorial, HalfNormal

_SHOWN = 12
"""Most contrasts of a half-normal plot that a terminal gets; JSON and CSV have all."""


def effects(*, of: GRID_FLAGS = ONE_GRID, interactions: Flag = False) -> int:
    """Show the effect of each axis, with seeds as blocks: F tests, effect sizes, means. docs/factorial.md.

    If only runs of one seed have values, it shows which effects stand out instead, and draws no verdict. JSON has
    tests, contrasts and means. CSV has the tests, or the contrasts of one seed.

    Parameters
    ----------
    interactions
        Test also whether what one axis does depends on another.
    """
    from store.analysis.effects import analysis, half_normal_data

    with of.open() as (store, name, warnings):
        header = store.grid(name)
        found = analysis(store, name, interactions=interactions)
        single = half_normal_data(store, name) if found.seeds == 1 else None
    if of.as_json:
        write_json("effects", _data(found, single), [*warnings, *found.notes])
    elif of.as_csv:
        write_frame("effects", found.terms if single is None else single.contrasts, as_json=False, as_csv=True)
    else:
        write(
            f"{describe_measure(header)} on the {header['measure']['scale']} scale, {format_count(found.runs, 'run')}"
        )
        _write_single(single) if single is not None else _write_tests(found, header["measure"])
        _write_means(found.means, header["measure"])
        for note in found.notes:
            say(f"ablate: {note}")
    return 0


def _data(found: "Factorial", single: "HalfNormal | None") -> dict[str, Any]:
    terms = found.terms.rows(named=True) if single is None else []
    data: dict[str, Any] = {"terms": terms, "means": found.means.rows(named=True)}
    data |= {"runs": found.runs, "noise": found.noise, "half_normal": None}
    if single is not None:
        numbers = {"pseudo_error": single.pseudo_error, "margin": single.margin, "simultaneous": single.simultaneous}
        data["half_normal"] = {"contrasts": single.contrasts.rows(named=True), **numbers}
    return data


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


def _write_single(single: "HalfNormal") -> None:
    known = single.contrasts.drop_nulls("effect")
    write("one seed: effects against half-normal quantiles; the largest may be noise, and no verdict is drawn")
    columns = ["contrast", "effect", "quantile", "beyond"]
    write_table(columns, [tuple(map(_short, row)) for row in known.select(columns).head(_SHOWN).rows()])
    if known.height > _SHOWN:
        write(f"and {known.height - _SHOWN} smaller ones; --csv has all")
    if single.margin is not None and single.simultaneous is not None:
        write(
            f"Lenth's pseudo standard error {single.pseudo_error:.3g}, margin {single.margin:.3g}, "
            f"simultaneous margin {single.simultaneous:.3g}"
        )
    for contrast, aliased in (
        single.contrasts.filter(single.contrasts["effect"].is_null()).select("contrast", "aliased_with").rows()[:_SHOWN]
    ):
        say(f"ablate: {contrast} cannot be told from {', '.join(aliased)}")


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
