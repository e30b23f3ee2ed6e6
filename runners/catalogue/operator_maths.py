"""Facts and weights of operators for the dashboard. Imports torch on first use."""

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import final

from ablate.grid.operator_view import (
    Arguments,
    ListedOperator,
    Numbers,
    OperatorName,
    OperatorView,
    Profile,
    ScoreCurve,
)


@final
class OperatorMaths:
    """Implements `OperatorCatalogue`. `spec` is a file whose operators and choices are known, too.

    Methods raise NotFoundError for an unknown operator, and SpecError for an invalid spec, argument, number or row of
    logits.
    """

    def __init__(self, spec: Path | None = None) -> None:
        self._spec = spec
        self._lock = Lock()

    def _view(self) -> ModuleType:
        """Import the operators, and the spec file once."""
        from ablate.runners.catalogue import operator_view

        with self._lock:
            if self._spec is not None:
                from ablate.runners.provenance.specfile import import_spec_file

                import_spec_file(self._spec)
                self._spec = None
        return operator_view

    def list_operators(self) -> Sequence[ListedOperator]:
        """List all named operators, in the order of the papers."""
        return self._view().list_operators()  # type: ignore[no-any-return]

    def describe(self, operator: OperatorName, arguments: Arguments) -> OperatorView:
        """Describe an operator. `arguments` belong to the function of a named one."""
        return self._view().describe_operator(operator, arguments)  # type: ignore[no-any-return]

    def weights(
        self, operator: OperatorName, arguments: Arguments, numbers: Numbers, logits: Sequence[float]
    ) -> Sequence[Profile]:
        """Compute the weights of the last query over keys with these logits (nats)."""
        view = self._view()
        return view.weights(view.make_operator(operator, arguments), numbers, logits)  # type: ignore[no-any-return]

    def scores(
        self, operator: OperatorName, arguments: Arguments, numbers: Numbers, logits: Sequence[float]
    ) -> Sequence[ScoreCurve]:
        """Compute the unnormalised score of a key with each of these logits."""
        view = self._view()
        return view.scores(view.make_operator(operator, arguments), numbers, logits)  # type: ignore[no-any-return]
