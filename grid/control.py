"""Controls: the simplest explanations of what a cell changes, as cells beside it.

A trial that has explanations offers them by `controls(measure, baseline)`, a tuple of `ControlChange`. A grid asks for
this method and knows nothing else of them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, final

from pydantic import InstanceOf

from ablate.grid.axis import Axis, Scalar
from ablate.grid.builder import Builder
from ablate.grid.errors import SpecError
from ablate.grid.experiment import Experiment
from ablate.grid.measure import Measure
from ablate.grid.own_methods import ask
from ablate.grid.spec import cell_key
from ablate.grid.suggestions import suggest_name


class ControlChange(NamedTuple):
    """A simple explanation of what a cell changes: other changes of the cell's baseline."""

    label: str
    """The change in words, such as "a window of 32"."""
    kind: str
    """The kind of explanation. In a list of a grid, a control is of the variants that offer one of its kind."""
    changes: Mapping[str, object]
    """Levels of fields by dotted path."""

    def trial(self, baseline: Any) -> Experiment:
        """Return `baseline` with the changes; raise `SpecError` if they do not fit it."""
        axes = [Axis(path, (level,), (path,)) for path, level in self.changes.items()]
        try:
            return Builder(baseline, axes).trial([0] * len(axes), baseline.seed)
        except SpecError as error:
            raise SpecError(f"the control {self.label!r} does not fit its baseline: {error}") from error


Wanted = Literal["auto"] | Sequence[str | ControlChange]
"""Which controls a grid has: all that its trials offer, or some of these by label, and others."""


class ControlCell(NamedTuple):
    """A cell that a grid has as a control."""

    control: ControlChange
    label: str
    trial: Experiment
    levels: Mapping[str, Scalar]
    """Its levels on the axes: its baseline's."""

    def changes(self, path: str) -> bool:
        """Return True if it changes the field at `path`, or one inside it or around it."""
        return any(
            f"{one}.".startswith(f"{other}.")
            for own in self.control.changes
            for one, other in ((own, path), (path, own))
        )


@final
@dataclass(frozen=True)
class Controls:
    """The controls of the variants of a grid."""

    cells: dict[str, ControlCell] = field(default_factory=dict)
    """Cells that are added, by key."""
    of: dict[str, list[str]] = field(default_factory=dict)
    """Variant -> the cells of its controls. One that the grid has as a variant anyway is not added."""
    missing: dict[str, list[str]] = field(default_factory=dict)
    """Variant -> labels of the controls that it offers and the grid does not have."""
    absent: dict[str, str] = field(default_factory=dict)
    """Their cells: key -> label of the control."""
    unfit: dict[str, None] = field(default_factory=dict)
    """Why controls do not fit, in order."""

    def data(self) -> dict[str, Any]:
        """Return the `controls` of a grid's header."""
        kinds = {cell: each.control.kind for cell, each in self.cells.items()}
        return {name: dict(sorted(each.items())) for name, each in (("cells", kinds), ("of", self.of))} | {
            "missing": dict(sorted(self.missing.items()))
        }


class CellTrial(NamedTuple):
    """A cell of a grid with its first trial and its levels."""

    cell: str
    label: str
    trial: Experiment
    levels: Mapping[str, Scalar]


def check_wanted(grid: str, wanted: object) -> None:
    """Raise `SpecError` unless `wanted` are controls of a grid."""
    listed = isinstance(wanted, list | tuple) and all(isinstance(each, str | ControlChange) for each in wanted)
    if wanted != "auto" and not listed:
        raise SpecError(
            f"grid {grid!r} has controls={wanted!r}; write 'auto', or a list of labels and ControlChange(...)"
        )


def find_controls(
    pairs: Iterable[tuple[CellTrial, CellTrial]], cells: Mapping[str, str], measure: Measure, wanted: Wanted
) -> Controls:
    """Find the controls of each variant, given with its baseline, of a grid that has `cells`: key -> label.

    Raises `SpecError` for a listed control that does not fit, that no variant offers, or that is no cell of its own.
    """
    result, known, used = Controls(), set[str](), dict[str, str]()
    applied: dict[tuple[str, str], _Applied] = {}  # thousands of variants may share a baseline
    own = [] if wanted == "auto" else [each for each in wanted if isinstance(each, ControlChange)]
    for variant, base in pairs:
        offered: tuple[ControlChange, ...] = ask(variant.trial.controls, _Offered, _OFFERED, measure, base.trial)
        known |= {each.label for each in offered}
        kinds = {each.kind for each in offered}
        for control in (*offered, *(each for each in own if each.kind in kinds)):
            chosen = wanted == "auto" or control in own or control.label in wanted
            made = _apply(control, base, applied)
            if isinstance(made.trial, SpecError):
                if chosen and wanted != "auto":
                    raise made.trial
                result.unfit.setdefault(str(made.trial))
                continue
            trial, key = made.trial, made.key
            if itself := {variant.cell: variant.label, base.cell: base.label}.get(key):
                used.setdefault(control.label, itself)
                continue  # nothing explains itself
            if not chosen and key not in cells:
                result.missing.setdefault(variant.cell, []).append(control.label)
                result.absent.setdefault(key, control.label)
                continue
            used[control.label] = ""
            if key not in result.of.setdefault(variant.cell, []):
                result.of[variant.cell].append(key)
            if key not in cells:
                label = f"{base.label} with {control.label}"
                result.cells.setdefault(key, ControlCell(control, label, trial, base.levels))
    for each in () if wanted == "auto" else wanted:
        _require_used(each if isinstance(each, str) else each.label, used, sorted(known))
    _require_labels(result, cells)
    return result


_Offered = tuple[InstanceOf[ControlChange], ...]
_OFFERED: Final = "a list of ControlChange(label, kind, changes)"


class _Applied(NamedTuple):
    control: ControlChange
    trial: Experiment | SpecError
    key: str = ""


def _apply(control: ControlChange, base: CellTrial, applied: dict[tuple[str, str], _Applied]) -> _Applied:
    """Apply a control to a baseline, or return what was made of both before."""
    made = applied.get((base.cell, control.label))
    if made is None or made.control != control:
        try:
            trial = control.trial(base.trial)
            made = _Applied(control, trial, cell_key(trial))
        except SpecError as error:
            made = _Applied(control, error)
        applied[base.cell, control.label] = made
    return made


def _require_used(label: str, used: Mapping[str, str], known: list[str]) -> None:
    """Raise `SpecError` unless a control explains a cell; `used` has "", or the variant or baseline that it equals."""
    if label not in used:
        told = f"they have {', '.join(known) or 'none'}{suggest_name(label, known)}"
        raise SpecError(f"the control {label!r} is of no cell; {told}")
    if cell := used[label]:
        raise SpecError(
            f"the control {label!r} is the cell {cell!r} itself; change a field in which it differs from the variants "
            "and their baseline, or leave it out"
        )


def _require_labels(result: Controls, cells: Mapping[str, str]) -> None:
    taken = Counter([*cells.values(), *(each.label for each in result.cells.values())])
    for label, count in taken.items():
        if count > 1:
            raise SpecError(f"two cells are called {label!r}, one of them a control; rename it")
