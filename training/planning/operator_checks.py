"""Checks of operators by random input, for plans: starts that cannot move, fixed numbers, same functions."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, final

from ablate.grid.experiment import Findings
from ablate.grid.names import some
from ablate.runners.output import format_count, slow_notice
from ablate.runners.planning.duration import describe_problem
from ablate.runners.processes.process_state import use_threads
from ablate.training.planning.random_layer import smallest_layer
from ablate.training.planning.same_functions import (
    Functions,
    LayeredCell,
    SameFunction,
    place,
    same_function_lines,
    same_functions,
)
from ablate.training.planning.starts import (
    LEAST_REACH,
    Movement,
    NumberStart,
    flat_start_lines,
    flat_starts,
    movement,
    starts,
)
from ablate.training.trial import Trial
from ablate.variants import Backbone, ForeignBackbone, Mixer, Number, Operator

MOST_OPERATORS: Final = 500
"""Distinct operators, or trainings, of a grid that are tried, each some milliseconds."""
MOST_ENTRIES: Final = 2**26
"""Entries of attention maps that are computed to find the same functions, some seconds; of one, an eighth."""
LONGEST: Final = 512
"""Longest sequence on which starts are tried."""
_APART = frozenset(("operator", "placement", "seed", "execution"))
"""Fields of a trial in which cells of the same function may differ."""

R = TypeVar("R")


class _PlannedCell(NamedTuple):
    label: str
    trial: Trial
    model: Backbone
    layers: tuple[Operator, ...]

    @property
    def operators(self) -> tuple[Operator, ...]:
        return tuple(dict.fromkeys(self.layers))


def find_warnings(cells: Mapping[str, Trial]) -> Findings:
    """Check the operators of the cells of a grid, by label; what cannot be computed is a finding, too."""
    with slow_notice("planning: computing operators on random input"), use_threads(1):
        return _GridChecks(cells).findings()


@final
class _GridChecks:
    def __init__(self, cells: Mapping[str, Trial]) -> None:
        self._cells, self._foreign = list[_PlannedCell](), dict[str, Trial]()
        for label, trial in cells.items():
            layers, model = trial.attention(), trial.model
            if layers is None or not isinstance(model, Backbone):
                self._foreign[label] = trial
            else:
                self._cells.append(_PlannedCell(label, trial, model, layers))
        self._operators = tuple(dict.fromkeys(operator for cell in self._cells for operator in cell.operators))
        self._unchecked: dict[str, None] = {}

    def findings(self) -> Findings:
        starts, same = flat_starts(self._starts()), self._try("same functions", self._same_functions) or ()
        fixed = self._try("granularities", partial(_fixed_numbers, self._operators)) or ()
        lines = (
            *flat_start_lines(starts),
            *([_fixed_number_line(fixed)] if fixed else []),
            *same_function_lines(same),
            *self._foreign_lines(),
            *self._unchecked,
        )
        kinds: dict[str, Sequence[Any]] = {"starts": starts, "fixed": fixed, "same_functions": same}
        data = {kind: [each._asdict() for each in rows] for kind, rows in kinds.items()}
        return Findings(lines, {**data, "least_reach": LEAST_REACH, "unchecked": [*self._unchecked]})

    def _foreign_lines(self) -> Iterator[str]:
        """Say what is left out in cells with mixers or foreign backbones."""
        layers = (each for trial in self._foreign.values() for each in (*trial.operators(), trial.model))
        labels = dict.fromkeys(each.label for each in layers if isinstance(each, Mixer | ForeignBackbone))
        if labels:
            yield (
                f"{some([*labels], 3)}: no attention that is known here, so probes of layers record nothing there, and "
                f"nothing is knocked out in {format_count(len(self._foreign), 'cell')}, {some([*self._foreign], 3)}"
            )

    def _starts(self) -> Iterator[tuple[str, NumberStart]]:

        def of(cell: _PlannedCell, operator: Operator, moved: Movement) -> list[NumberStart]:
            size = smallest_layer(cell.model, (operator,), min(cell.trial.task.trained_length, LONGEST))
            return [*starts(operator, size, cell.layers.index(operator), moved)]

        if self._are_too_many("starts", trainings=len({cell.trial.training for cell in self._cells})):
            return
        for cell in self._cells:
            training = cell.trial.training
            moved = self._try(training.optimiser.label, partial(movement, training))
            if moved is None:
                continue
            for operator in cell.operators:
                number_starts = self._try(operator.label, partial(of, cell, operator, moved))
                yield from ((cell.label, each) for each in number_starts or ())

    def _same_functions(self) -> tuple[SameFunction, ...]:
        if not self._cells or self._are_too_many("same functions"):
            return ()
        cells = self._list_cells()
        work = {
            each: each.operator.signals.count * each.size.heads * each.size.length**2
            for cell in cells
            for each in place(cell)
        }
        most, largest = sum(work.values()), max(work.values())
        if most > MOST_ENTRIES or largest > MOST_ENTRIES // 8:
            self._tell(
                f"same functions are not looked for: {len(work):,} attention maps of {cells[0].size.length:,} tokens "
                f"have {most:,} weights, at most {MOST_ENTRIES:,}, and {MOST_ENTRIES // 8:,} in one"
            )
            return ()
        return tuple(same_functions(cells, Functions(self._try)))

    def _list_cells(self) -> list[LayeredCell]:
        """Cells of one model and length have one size, which all their operators take."""

        together: dict[Any, dict[Operator, None]] = defaultdict(dict)
        for cell in self._cells:
            together[cell.model, cell.trial.longest].update(dict.fromkeys(cell.operators))
        sizes = {key: smallest_layer(key[0], tuple(operators), key[1]) for key, operators in together.items()}
        return [
            LayeredCell(cell.label, cell.layers, sizes[cell.model, cell.trial.longest], _rest(cell.trial))
            for cell in self._cells
        ]

    def _try(self, what: str, question: Callable[[], R]) -> R | None:
        """Ask a question of code that may be a user's; a failure is a finding."""
        try:
            return question()
        except Exception as error:  # noqa: BLE001
            self._tell(f"{what} could not be checked: {describe_problem(error)}")
            return None

    def _are_too_many(self, what: str, **counts: int) -> bool:
        for noun, count in {"operators": len(self._operators), **counts}.items():
            if count > MOST_OPERATORS:
                self._tell(f"{what} are not looked for: {count:,} {noun}, at most {MOST_OPERATORS:,}")
                return True
        return False

    def _tell(self, text: str) -> None:
        self._unchecked[text] = None


def _rest(trial: Trial) -> tuple[Any, ...]:
    """Return the fields of a trial in which cells of the same function are equal."""
    return tuple(getattr(trial, name) for name in type(trial).model_fields if name not in _APART)


class _FixedNumber(NamedTuple):
    """A number that is fixed in some cells, by `constant`, and trained in others, from the same start."""

    number: str
    """As "stage.field"."""
    value: float
    trained: tuple[str, ...]
    """The granularities at which others train it."""


def _fixed_numbers(operators: Iterable[Operator]) -> tuple[_FixedNumber, ...]:
    """Find the numbers that `operators` compare at `constant`, without `learned=True`, with other granularities."""
    groups: dict[tuple[str, str, Number], list[Number]] = defaultdict(list)
    for operator in operators:
        for name, number in operator.numbers().items():
            if () not in number.allowed:
                continue
            kind = getattr(operator, name.partition(".")[0]).kind
            groups[name, kind, number.at("constant")].append(number)
    return tuple(
        _FixedNumber(name, fixed.init, tuple(dict.fromkeys(each.label for each in numbers if each.per)))
        for (name, _, fixed), numbers in groups.items()
        if fixed in numbers and any(each.per for each in numbers)
    )


def _fixed_number_line(numbers: Iterable[_FixedNumber]) -> str:
    """Say in a line what `constant` means."""
    values = ", ".join(f"{each.number} stays at {each.value:g}" for each in numbers)
    return f"per='constant' trains nothing: {values}; learned=True trains one scalar for all layers and heads"
