"""A trained model for evaluations: on its device, in the precision of its training."""

from typing import Literal, final

import torch

from ablate.training.tasks.task import Predict
from ablate.variants.axes import Inputs, Outputs, Visibility
from ablate.variants.model.cache import ModelCache
from ablate.variants.model.foreign import Model


@final
class ModelPredict(Predict):
    """Predictions of a model; the caller is in inference mode."""

    def __init__(self, model: Model, device: torch.device, precision: Literal["float32", "bfloat16"]) -> None:
        self._model, self._device, self._precision = model, device, precision

    def __call__(
        self, inputs: Inputs, visible: Visibility | None = None, cache: ModelCache | None = None, /
    ) -> Outputs:
        inputs = inputs.to(self._device)
        visible = None if visible is None else visible.to(self._device)
        if self._precision == "float32":
            return self._model(inputs, visible, cache)  # type: ignore[no-any-return]
        with torch.autocast(self._device.type, dtype=torch.bfloat16):
            return self._model(inputs, visible, cache).float()  # type: ignore[no-any-return]

    def start_cache(self, tokens: int) -> ModelCache:
        return self._model.start_cache(tokens)
