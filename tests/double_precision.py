"""Training in float64, where what rounding does is told from what a wrong formula does."""

from collections.abc import Callable

import pytest
import torch

import ablate.training.loop.train
from ablate.training.tasks import Batch
from ablate.training.tasks.synthetic.linear_functions import LinearFunctionsData
from ablate.training.trial import Trial, build_model
from ablate.variants import Transformer


def in_double(patch: pytest.MonkeyPatch) -> None:
    """Models of linear functions are trained and judged in float64, on the same data."""
    patch.setattr(ablate.training.loop.train, "build_model", _build)
    patch.setattr(LinearFunctionsData, "batch", _double(LinearFunctionsData.batch))


def _build(trial: Trial) -> Transformer:
    model = build_model(trial).double()
    embed = model.embed  # shared by predictions and traces
    model.embed = lambda x: embed(x.double())  # type: ignore[method-assign]
    return model


def _double(batch: Callable[..., Batch]) -> Callable[..., Batch]:
    return lambda *given: Batch(*(each.to(torch.float64) for each in batch(*given)[:2]))
