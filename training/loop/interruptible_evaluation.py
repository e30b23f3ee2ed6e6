"""Evaluations that can be interrupted: a resumed one recalls the results of its first forward passes."""

from collections.abc import Callable
from typing import Any, TypeVar, final

from ablate.training.tasks.task import Predict, predict_next, start_cache
from ablate.variants.axes import Inputs, Outputs, Visibility
from ablate.variants.model.cache import ModelCache

T = TypeVar("T")


class EvaluationStopped(Exception):
    """A stop was requested during an evaluation."""


@final
class InterruptiblePredict(Predict):
    """A model for the evaluations of one step; `keep` is called after each result of `once`, all in `kept`."""

    def __init__(
        self, outputs: Predict, kept: list[Any], stop_requested: Callable[[], bool], keep: Callable[[], None]
    ) -> None:
        self._outputs, self._kept, self._stop_requested, self._keep = outputs, kept, stop_requested, keep
        self._recalled = 0

    def __call__(
        self, inputs: Inputs, visible: Visibility | None = None, cache: ModelCache | None = None, /
    ) -> Outputs:
        if self._stop_requested():
            raise EvaluationStopped
        return predict_next(self._outputs, inputs, visible, cache)

    def start_cache(self, tokens: int) -> ModelCache | None:
        return start_cache(self._outputs, tokens)

    def once(self, compute: Callable[[], T]) -> T:
        """Return the result of `compute`, tensors or plain data; an earlier attempt may have computed it."""
        if self._recalled == len(self._kept):
            self._kept.append(compute())
            self._keep()
        self._recalled += 1
        result: T = self._kept[self._recalled - 1]
        return result
