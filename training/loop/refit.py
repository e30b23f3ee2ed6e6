"""Refit: what a temperature and a size of each head make up for, after parts of a trained model were knocked out.

Factors of queries and outputs are fitted by L-BFGS to the loss of the last training batches, until it stops improving.
All weights stay as they are.
"""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from ablate.training.loop.batch_parts import BatchPart, parts
from ablate.training.tasks.task import Data, Predict, once
from ablate.training.trial import Trial
from ablate.variants import Transformer
from ablate.variants.model.head_attention import HeadScales

BATCHES = 4
MOST = 50
"""Most passes over these batches."""
STILL = 1e-5
"""Improvement, as a share of the loss at the start, below which it stops."""


def fit_scales(trial: Trial, model: Transformer, data: Data, predict: Predict) -> list[HeadScales]:
    """Fit the factors of every layer, bottom first, to the model as it computes now; `predict` computes with it."""
    device = model.read_out.weight.device
    fitted = once(predict, partial(_fit, trial, model, data, predict))
    return [HeadScales(*each.to(device)) for each in fitted]


def last_batches(trial: Trial, data: Data) -> list[BatchPart]:
    """Draw the last training batches, in the parts of the training, as shares of one batch."""
    steps, count = trial.training.steps, trial.parts
    wanted = range(max(1, steps - BATCHES + 1), steps + 1)
    drawn = [part for step in wanted for part in parts(data, data.batch(trial.seed, step), count, range(count))]
    return [part._replace(terms=part.terms / len(wanted)) for part in drawn]


def _fit(trial: Trial, model: Transformer, data: Data, predict: Predict) -> list[Float[Tensor, "2 heads 1 1"]]:
    """Return the two factors [2, H, 1, 1] of the heads of each layer, on the CPU."""
    with torch.inference_mode(False), torch.enable_grad():  # noqa: FBT003
        drawn = [part for part in last_batches(trial, data) if part.terms]
        shapes = [(2, each.heads, 1, 1) for each in model.attentions()]
        logs = [torch.zeros(shape, device=model.read_out.weight.device, requires_grad=True) for shape in shapes]
        first: list[float] = []

        def measure() -> float:
            total, gradients = 0.0, [torch.zeros_like(each) for each in logs]
            for part in drawn:
                with model.scale_heads([HeadScales(*each.exp()) for each in logs]):
                    outputs = predict(part.batch.inputs, part.batch.visible)
                batch = data.complete_batch(part.batch.to(outputs.device))
                loss = data.loss(outputs, batch.targets) * part.terms
                for gradient, own in zip(gradients, torch.autograd.grad(loss, logs), strict=True):
                    gradient += own
                total += float(loss.detach())
            first.append(abs(total) or 1.0)
            for each, gradient in zip(logs, gradients, strict=True):
                each.grad = gradient / first[0]
            return total / first[0]

        optimiser = torch.optim.LBFGS(
            logs, max_iter=MOST, max_eval=MOST, tolerance_change=STILL, line_search_fn="strong_wolfe"
        )
        optimiser.step(measure)  # type: ignore[no-untyped-call]
        return [each.detach().exp().cpu() for each in logs]
