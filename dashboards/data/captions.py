"""Words that several pages and the report share: verdicts, answers, measures, averages and the cells that are shown."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from ablate.dashboards.data.formatting import (
    change,
    count,
    in_odds,
    join_words,
    p_value,
    point,
    runs_words,
    write_minus,
)
from ablate.dashboards.data.grid_context import GridContext, best_first
from ablate.dashboards.data.user_errors import join_sentences
from ablate.store.analysis.headline import mark_checks
from ablate.store.analysis.verdicts import GridMeasure
from ablate.store.database.queries import baseline_cells
from ablate.store.statistics.check import CHECK_NAMES, Check
from ablate.store.statistics.seed_contrasts import NO_VALUE

Checks = Mapping[str, Sequence[Check]]
"""The checks of each cell, as `judge` has them."""

ICONS: Final[Mapping[str, tuple[str, str]]] = {
    "better": ("▲", "better"),
    "worse": ("▼", "worse"),
    "real, size unproven": ("△", "unproven"),
    "equivalent": ("=", "equivalent"),
    "off": ("○", "off"),
    "undecided": ("?", "undecided"),
    "no verdict": ("–", "none"),
}
"""Verdict -> its icon and its CSS class."""

CLAIMS: Final = {
    "better": "is better than {}",
    "real, size unproven": "differs from {}, by an amount not shown to matter",
    "worse": "is worse than {}",
}
"""Verdicts that a grid is about, in the order in which they are told."""


def mark_verdict(verdict: str) -> str:
    """A verdict as plain text with its icon."""
    return f"{ICONS[verdict][0]} {verdict}"


def summarise_verdicts(verdicts: pl.DataFrame, baseline: str) -> str:
    """The grid in one or two sentences: '2 of 5 variants differ from softmax: 2 better. 3 are undecided.'"""
    counts = dict(verdicts["verdict"].value_counts().iter_rows())
    differing = [f"{counts[name]} {name}" for name in ("better", "worse", "real, size unproven") if counts.get(name)]
    total = sum(counts.get(name, 0) for name in CLAIMS)
    variants = count(verdicts.height, "variant")
    first = f"{total} of {variants} {'differs' if total == 1 else 'differ'} from {baseline}"
    if verdicts.height == 1:
        first = f"The only variant {'differs' if total else 'is not shown to differ'} from {baseline}"
    elif not total:
        first = f"None of {variants} is shown to differ from {baseline}"
    if differing:
        first += ": " + join_words(differing)
    rest = []
    for name in ("equivalent", "off", "undecided", "no verdict"):
        if n := counts.get(name):
            verb = ("has" if n == 1 else "have") if name == "no verdict" else "is" if n == 1 else "are"
            rest.append(f"{n} {verb} {name}")
    return f"{first}. {join_words(rest)}." if rest else f"{first}."


def name_best(
    context: GridContext, measure: GridMeasure, verdicts: pl.DataFrame, baseline: str, checks: Checks | None = None
) -> str:
    """Say the verdict and size of the variant of `find_lead`, and its doubt or how it is beyond its controls."""
    row = find_lead(verdicts, measure)
    if row is None:
        return f"No difference from {baseline} is known yet."
    name, size = context.appearance.names[row["cell"]], size_of(row, measure)
    doubtful, passed = find_doubtful(verdicts, measure), verdicts["headline"].any()
    if row["verdict"] in CLAIMS:
        of = "This claim does not pass every check;" if passed else "No claim here passes every check; of this one,"
        doubt = "" if doubtful is None else f" {of} {write_minus(doubtful['doubt'])}{_list_failed(doubtful)}."
        controls = [each.reason for each in (checks or {}).get(row["cell"], ()) if each[:2] == ("control", "yes")]
        beyond = f" It is {write_minus(controls[0])}." if controls else ""
        return f"{name} {CLAIMS[row['verdict']].format(baseline)}: {size}.{beyond}{doubt}"
    for word, what in (("equivalent", f"equivalent to {baseline}"), ("off", "off: what it changes did nothing")):
        if (equal := verdicts.filter(verdict=word).height) == verdicts.height:
            doubt = "" if doubtful is None else f" No claim here passes every check: {write_minus(doubtful['doubt'])}."
            return f"{'The variant is' if equal == 1 else f'All {equal} variants are'} {what}.{doubt}"
    return f"No variant is shown to differ from {baseline}; the largest seen is {name}, {size}."


def _list_failed(row: Mapping[str, Any]) -> str:
    """Name the failed and unknown checks of a row beside the one that its doubt tells."""
    others = {
        word: [name for name in CHECK_NAMES if row.get(name) == answer and not row["doubt"].startswith(f"{name}:")]
        for word, answer in (("failed", "no"), ("unknown", "unknown"))
    }
    return "".join(f"; {join_words(names)} {word}, too" for word, names in others.items() if names)


def find_doubtful(verdicts: pl.DataFrame, measure: GridMeasure) -> Mapping[str, Any] | None:
    """Return the claim whose doubt is told: that of `find_lead`, else the first if no claim passes every check."""
    lead, doubtful = find_lead(verdicts, measure), verdicts.drop_nulls("doubt")
    if lead is not None and lead["verdict"] in CLAIMS:
        return None if lead["doubt"] is None else lead
    return None if verdicts["headline"].any() or doubtful.is_empty() else doubtful.row(0, named=True)


def find_lead(verdicts: pl.DataFrame, measure: GridMeasure) -> Mapping[str, Any] | None:
    """Return the row of the best variant if one is better, else of the worst, else of the largest difference.

    Claims that pass every check come before all others.
    """
    known = best_first(verdicts, measure).drop_nulls("difference")
    sure = known.filter(pl.col("headline") & pl.col("verdict").is_in([*CLAIMS]))
    known = known if sure.is_empty() else sure
    for verdict in CLAIMS:
        rows = known.filter(pl.col("verdict") == verdict)
        if not rows.is_empty():
            return rows.row(-1 if verdict == "worse" else 0, named=True)
    if known.is_empty():
        return None
    return known.sort(pl.col("difference").abs(), descending=True, maintain_order=True).row(0, named=True)


def size_of(row: Mapping[str, Any], measure: GridMeasure) -> str:
    """Write a difference with the interval that decides, or its own.

    'mse −33 % (corrected 95 % interval of the mean difference: −53 % to −7.4 %)'
    """
    corrected = row["corrected_low"] is not None
    ends = ("corrected_low", "corrected_high") if corrected else ("low", "high")
    low, high = (change(row[end], measure.scale) for end in ends)
    kind = "corrected " if corrected else ""
    interval = f"{kind}{100 * (1 - measure.alpha):g} % interval of the mean difference"
    span = "" if row[ends[0]] is None else f" ({interval}: {low} to {high})"
    return f"{measure.name} {change(row['difference'], measure.scale)}{in_odds(measure.scale)}{span}"


def rank_axes(effects: pl.DataFrame, measure: GridMeasure) -> tuple[str, str]:
    """Say which axes matter, by size, each with its best level; name the others; say what all do. Then the doubts.

    `effects` are those of `forest.effects`.
    """
    known = effects.filter(order=1).drop_nulls("effect")
    mains = known.sort(pl.col("effect").abs(), descending=True, maintain_order=True)
    told: dict[str, list[str]] = {"matter": [], "real": [], "equivalent": [], "undecided": []}
    doubts = []
    for factor in mains["factor"].unique(maintain_order=True):
        rows = mains.filter(factor=factor)
        shown = rows.filter(pl.col("verdict").is_in(["better", "worse"]))
        kind = "matter" if shown.height else "real"
        shown = shown if shown.height else rows.filter(pl.col("verdict") == "real, size unproven")
        if shown.is_empty():
            told["equivalent" if (rows["verdict"] == "equivalent").all() else "undecided"].append(factor)
            continue
        best = shown.sort("effect", descending=measure.better == "higher").row(0, named=True)
        size = f"{change(best['effect'], measure.scale)}{in_odds(measure.scale)}"
        words = f"{best['level']} against {best['against']} {size}, p {p_value(best['p_holm'])}"
        told[kind].append(f"{factor} ({words})")
        doubts += [f"{factor} {best['level']}, {best['doubt']}"] if best["doubt"] else []
    empty = effects.filter((pl.col("order") == 1) & (pl.col("note") == NO_VALUE)).select("factor", "level").rows()
    sentences = [f"No run has a value at {join_words([' '.join(each) for each in empty])}."] if empty else []
    for kind, (one, several) in _AXES.items():
        names = told[kind]
        said = "; ".join(names) if kind in ("matter", "real") else join_words(names)
        said = (one if len(names) == 1 else several).format(said)
        sentences += [said] if names else []
    for row in effects.filter(order=0).iter_rows(named=True):
        sentences.append(_say_together(row, measure))
        doubts += [f"the mean, {row['doubt']}"] if row["doubt"] else []
    return " ".join(sentences), join_sentences(doubts).strip()


def _say_together(row: Mapping[str, Any], measure: GridMeasure) -> str:
    """Say what all variants together do: 'The mean of 192 cells is worse than softmax: loss +0.066 (...).'"""
    others, alone = {"equivalent": "is equivalent to {}"}, {**row, "difference": row["effect"], "corrected_low": None}
    claim = {**CLAIMS, **others}.get(row["verdict"], "is not shown to differ from {}").format(row["against"])
    return f"The mean of {row['level']} {claim}: {size_of(alone, measure)}."


def lead_by_axes(effects: pl.DataFrame, verdicts: pl.DataFrame) -> bool:
    """True if axes are the finding of a grid: one is more certain than any cell, or most cells are undecided."""
    mains = effects.filter(order=1)
    if 2 * verdicts.filter(pl.col("verdict").is_in(["undecided", "no verdict"])).height > verdicts.height:
        return True
    for known in (["better", "worse"], ["real, size unproven"]):
        if verdicts["verdict"].is_in(known).any():
            return False
        if mains["verdict"].is_in(known).any():
            return True
    return False


def tell_seeds(verdicts: pl.DataFrame, planned: int) -> str:
    """Say how many undecided variants more seeds would decide: '... 5 seeds would decide 2, 20 seeds 7, ...'."""
    undecided = verdicts.filter(verdict="undecided")
    if undecided.is_empty():
        return ""
    decided = {seeds: undecided.filter(pl.col("seeds_to_decide") <= seeds).height for seeds in _BUDGETS}
    more = [seeds for seeds in _BUDGETS if seeds > planned and decided[seeds]]
    news = [seeds for at, seeds in enumerate(more) if not at or decided[seeds] > decided[more[at - 1]]]
    said = [f"{seeds} seeds{'' if at else ' would decide'} {decided[seeds]}" for at, seeds in enumerate(news)]
    what = join_words(said) or f"not even {_BUDGETS[-1]} seeds would decide any"
    are = "is" if undecided.height == 1 else "are"
    first = f"{undecided.height} of {count(verdicts.height, 'variant')} {are} undecided with {count(planned, 'seed')}"
    return f"{first}. If the true differences are those seen, {what}, with 80 % power."


_BUDGETS: Final = (5, 10, 20, 50)  # numbers of seeds that `tell_seeds` names
_AXES: Final = {
    "matter": ("One compared axis matters: {}.", "Compared axes that matter, the largest first: {}."),
    "real": (
        "One axis makes a difference, by an amount not shown to matter: {}.",
        "Axes that make a difference, by amounts not shown to matter: {}.",
    ),
    "equivalent": ("No difference that matters: {}.",) * 2,
    "undecided": ("Not shown to matter: {}.",) * 2,
}
"""Sentences for one axis and for several."""


def count_words(verdicts: pl.DataFrame) -> str:
    """'29 variants: 20 undecided; 3 better'."""
    counts = verdicts["verdict"].value_counts(sort=True).iter_rows()
    return f"{count(verdicts.height, 'variant')}: {'; '.join(f'{n} {verdict}' for verdict, n in counts)}"


def _name_with_point(measure: GridMeasure) -> str:
    return measure.name + (f" at {point(dict(measure.point))}" if measure.point else "")


def describe_measure(measure: GridMeasure, unit: str) -> str:
    """The measure in words: 'mse at sigma_f 3, sigma_x 1 (squared output units; lower is better)'."""
    return f"{_name_with_point(measure)} ({unit + '; ' if unit else ''}{measure.better} is better)"


def axis_title(measure: GridMeasure, unit: str, what: str = "") -> str:
    """An axis of the measure: 'loss, nats per token (lower is better)'; `what` stands before it."""
    named = ", ".join(filter(None, (f"{what} {_name_with_point(measure)}".strip(), unit)))
    return f"{named} ({measure.better} is better)"


def change_title(measure: GridMeasure, unit: str, what: str) -> str:
    """An axis of changes of the measure: on the log scale they are ratios, which have no unit."""
    log = "" if measure.scale == "linear" else f", log axis{in_odds(measure.scale)}"
    return axis_title(measure, "" if log else unit, what).replace(" (", f"{log} (", 1)


def paired_words(verdicts: pl.DataFrame) -> str:
    """How variants are compared with the baseline: 'paired by seed', and how many are not."""
    unpaired = verdicts.filter(pl.col("method") == "Welch").height
    if not unpaired:
        return "paired by seed"
    why = "unpaired (Welch), as fewer than three seeds are shared"
    return why if unpaired == verdicts.height else f"paired by seed; {unpaired} of {verdicts.height} {why}"


def describe_selection(
    context: GridContext, cells: Sequence[str], measure: GridMeasure | None = None, baseline: str | None = None
) -> str:
    """Say which cells are shown unless all are; `measure` and `baseline`, by default the grid's, picked them."""
    if len(cells) == len(context.cells):
        return ""
    by, base = measure or context.measure, baseline or context.baseline
    drawn = {*cells} & (baseline_cells(context.header) if base == context.baseline else {base})
    others = len(cells) - len(drawn)
    name = context.baseline_name if base == context.baseline else context.appearance.names[str(base)]
    with_baseline = f"{name} and " if drawn else ""
    if by is None:
        return f" Shown: {with_baseline}the first {others} of {len(context.cells)} cells."
    return (
        f" Shown: {with_baseline}the {others} cells of {len(context.cells)} with the best {by.name}"
        " so far; they were chosen by this result, so it is biased in their favour."
    )


def name_cells(frame: pl.DataFrame, context: GridContext) -> pl.DataFrame:
    """The frame with the names of its cells in place of their keys."""
    names = dict(context.appearance.names)
    name = pl.col("cell").replace_strict(names, default=None, return_dtype=pl.String).alias("variant")
    return frame.select(name, pl.exclude("cell"))


def effects_words(measure: GridMeasure, unit: str, notes: Sequence[str]) -> str:
    """Explain differences between levels, with the notes of the analysis."""
    return (
        f"Difference of a level of an axis from the level of the baseline in {describe_measure(measure, unit)}"
        f"{in_odds(measure.scale)}, averaged over the other compared axes. Each seed gives one value, so intervals "
        f"hold for new seeds. Thick bar: {(1 - measure.alpha) * 100:g} % interval of one comparison. Thin: corrected "
        "for all; it decides. All variants: the mean of their differences from the baseline. "
        "Rows with × show what both do together beyond the sum of what each does alone."
        f"{join_sentences(notes)}"
    )


def n_words(frame: pl.DataFrame) -> str:
    """The least and the greatest of the column n: 'n = 5', 'n = 3 to 5'."""
    counts = sorted(set(frame["n"].to_list()))
    return f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"


def progress_words(done: dict[str, int]) -> str:
    """'All 24 trials are done.', '3 of 24 trials done, 2 running; verdicts are preliminary.'"""
    planned, ended = done["planned"], done["done"]
    if ended == planned:
        return "The only trial is done." if planned == 1 else f"All {planned:,} trials are done."
    begun = [state for state in ("failed", "running", "stopped", "lost") if done[state]]
    if ended == 0 and not begun:
        return f"None of {count(planned, 'trial')} has run yet."
    parts = [f"{ended:,} of {count(planned, 'trial')} done"]
    parts += [f"{done[state]:,} {state}" for state in begun]
    open_ = ended + done["failed"] < planned
    return ", ".join(parts) + ("; verdicts are preliminary." if open_ else ".")


def verdict_words(context: GridContext, measure: GridMeasure, verdicts: pl.DataFrame, checks: Checks) -> pl.DataFrame:
    """Verdicts as texts: variant, verdict, checks, value, difference, interval, p (Holm), pairs, reason.

    Behind the variant of a tuned grid `selected`, then the answer of each check in a sentence, under its name.
    """
    texts = [
        (
            mark_verdict(row["verdict"]),
            mark_checks(row),
            change(row["difference"], measure.scale),
            "–" if row["low"] is None else " to ".join(change(row[end], measure.scale) for end in ("low", "high")),
            p_value(row["p_holm"]),
            runs_words(row) if row["method"] == "Welch" else f"{row['pairs']} of {row['planned']}",
        )
        for row in verdicts.iter_rows(named=True)
    ]
    names = ["verdict", "checks", "difference", "interval", "p (Holm)", "pairs"]
    told = pl.DataFrame(texts, dict.fromkeys(names, pl.String), orient="row")
    said = [[write_minus(f"{each.answer}: {each.reason}") for each in checks[cell]] for cell in verdicts["cell"]]
    reasons = pl.DataFrame(said, dict.fromkeys(CHECK_NAMES, pl.String), orient="row")
    own = name_cells(verdicts, context).drop("verdict", "difference", "pairs", *CHECK_NAMES)
    whole = pl.concat([own, told, reasons], how="horizontal")
    selected = ["selected"] if "selected" in own.columns else []
    return whole.select("variant", *selected, "verdict", "checks", "value", *names[2:], "reason", *CHECK_NAMES)
