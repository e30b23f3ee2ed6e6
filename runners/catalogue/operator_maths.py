"""Operators for the dashboard: what there is, what is known about each, and its weights. torch comes with first use."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import final

from grid.operator_view import ListedOperator, OperatorName, OperatorView, Profile, ScoreCurve


@final
class OperatorMaths:
    """Answers about operators; `spec` is a file whose operators and choices are known, too.

    Every method raises NotFoundError for an operator that there is not, and SpecError for a spec, an argument, a number
    or a row of logits that makes no sense.
    """

    def __init__(self, spec: Path | None = None) -> None:
        self._spec = spec
        self._lock = Lock()

    def _ready(self) -> None:
        """Load the spec file, once."""
        with self._lock:
            if self._spec is not None:
                from runners.provenance.specfile import import_spec_file

                import_spec_file(self._spec)
                self._spec = None

    def list_operators(self) -> Sequence[ListedOperator]:
        """All named operators, in the order of the papers."""
        from runners.catalogue import operator_view

        self._ready()
        return operator_view.named()

    def describe(self, operator: OperatorName, arguments: Mapping[str, str]) -> OperatorView:
        """What is known about an operator; `arguments` are of the function of a named one."""
        from runners.catalogue import operator_view

        self._ready()
        return operator_view.described(operator, arguments)

    def weights(
        self,
        operator: OperatorName,
        arguments: Mapping[str, str],
        numbers: Mapping[str, float],
        logits: Sequence[float],
    ) -> Sequence[Profile]:
        """The weights of the last query over keys with these logits (nats)."""
        from runners.catalogue import operator_view

        self._ready()
        return operator_view.weights(operator_view.made(operator, arguments), numbers, logits)

    def scores(
        self,
        operator: OperatorName,
        arguments: Mapping[str, str],
        numbers: Mapping[str, float],
        logits: Sequence[float],
    ) -> Sequence[ScoreCurve]:
        """What a key with each of these logits counts before normalisation."""
        from runners.catalogue import operator_view

        self._ready()
        return operator_view.scores(operator_view.made(operator, arguments), numbers, logits)
