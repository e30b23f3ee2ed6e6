"""Probes of a public checkpoint: a causal language model in a local Hugging Face directory.

The package `transformers` computes the model and hands over the queries, keys and values of every layer. Attention is
the definition of this package, so that probes measure what they measure in models trained here.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from ablate.grid import spec_error
from ablate.grid.errors import SpecError
from ablate.grid.optional_packages import require_package
from ablate.training.probes.probe import (
    Probe,
    Probed,
    ProbeInput,
    Probing,
    probe_model,
    require_long_enough,
    run_probes,
)
from ablate.training.tasks.distillation.hugging_face_model import HuggingFaceModel
from ablate.training.tasks.task import Task
from ablate.variants import Heads, causal, gpt2, softmax
from ablate.variants.attend import definition
from ablate.variants.axes import Ids, Visibility
from ablate.variants.model.head_attention import AttentionTrace
from ablate.variants.model.transformer import LayerTrace

if TYPE_CHECKING:
    from ablate.store.campaign import Campaign

_NAME: Final = "ablate"
"""Name of our attention in the package."""
_HARMLESS: Final = ("dropout", "position_ids", "sliding_window", "use_cache", "output_hidden_states")
"""Arguments of a call that change no weight here: the mask has the window, too."""
_PLAIN: Final = gpt2(layers=1, heads=1, width=8)
"""Stands for every checkpoint where probes ask for sink tokens: there are none."""


def probe_checkpoint(
    directory: str | Path,
    task: Task,
    probing: Probing,
    campaign: "Campaign",
    *,
    grid: str = "checkpoints",
    label: str | None = None,
) -> None:
    """Log the probes of a checkpoint as a run of `campaign`.

    A checkpoint that was probed alike before is skipped. Queries, keys, values and maps of all layers are in memory at
    once. The stream after the last layer is that after the model's last norm, as in the released code of paper 004.

    Args:
        directory: config.json and .safetensors files, as `save_pretrained` writes them.
        task: sequences of tokens, with the model's own tokenizer: `Text(tokenizer=TokenizerFile(...))`.
        probing: probes of layers, which record rows.
        campaign: where the run is logged; it is made if need be.
        grid: the grid of the run.
        label: name of the run, one for each checkpoint, task and probing; default the name of the directory.

    Raises:
        SpecError: the directory holds no such model, or one without softmax attention; the task has other tokens or
            longer sequences; a probe needs more than layers.
        EnvironmentProblem: the package transformers is missing.
    """
    _check(task, probing)
    try:
        source = HuggingFaceModel(directory=str(directory))
        source.check(task)
    except ValidationError as error:
        raise spec_error(error, "") from error
    except ValueError as error:
        raise SpecError(str(error)) from error
    config = {"model": source.content_hash, "task": task.data(), "probing": probing.data()}
    label = label or Path(source.directory).name
    if campaign.finished(label=label, seed=0, config=config):
        return
    with campaign.start(grid, label=label, seed=0, config=config) as run:
        checkpoint: Any = _Checkpoint(source.open(task).model, source.name())
        seen = ProbeInput(checkpoint, task, probe_model(task.open(), probing), 0, ())
        for each in run_probes(probing, seen):
            if isinstance(each, Probed):
                run.probe(0, each.name, each.value, layer=each.layer, head=each.head, point=each.point)


def _check(task: Task, probing: Probing) -> None:
    for probe in probing.probes:
        if type(probe).of_model is not Probe.of_model or any(row.per == "file" for row in probe.rows):
            raise SpecError(f"{probe.label} does not record rows of layers, as a probe of a checkpoint; leave it out")
    if task.sees_ahead:
        raise SpecError(
            f"the task {task.label!r} hides tokens, and a checkpoint predicts the next one; use a text task"
        )
    try:
        probing.check(task, _PLAIN, (softmax(),))
    except ValueError as error:
        raise SpecError(str(error)) from error
    require_long_enough(task.open(), probing, _PLAIN)


@final
class _Checkpoint:
    """A model of the package whose layers can be traced."""

    def __init__(self, model: Any, name: str) -> None:
        self._model, self._name = model, name

    @torch.inference_mode()
    def trace_layers(self, inputs: Ids, visible: Visibility | None) -> Iterator[LayerTrace]:
        """Yield the layers on token ids from the bottom; `visible` is as in `Batch`."""
        traces: list[AttentionTrace] = []
        plain = causal(inputs.shape[1], inputs.shape[1], inputs.device)
        mask = None if visible is None else (visible & plain)[:, None]

        def attend(
            module: nn.Module,
            query: Tensor,
            key: Tensor,
            value: Tensor,
            attention_mask: Tensor | None,
            scaling: float | None = None,
            **options: Any,
        ) -> tuple[Tensor, Tensor]:
            del module
            self._require_plain(options, attention_mask, plain)
            groups, root = query.shape[1] // key.shape[1], math.sqrt(query.shape[-1])
            q = query if scaling is None else query * (scaling * root)  # the definition divides by the root
            heads = Heads(q, key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1), mask)
            traces.append(AttentionTrace(heads, {}, definition(softmax(), heads, {})))
            attended = traces[-1].attended
            return attended.output.transpose(1, 2), attended.weights

        transformers = require_package("transformers", by="a public checkpoint", extra="transformers")
        transformers.AttentionMaskInterface.register(_NAME, transformers.masking_utils.sdpa_mask)
        transformers.AttentionInterface.register(_NAME, attend)
        try:
            self._model.set_attn_implementation(_NAME)
            streams = self._model(input_ids=inputs, use_cache=False, output_hidden_states=True).hidden_states
        finally:
            transformers.AttentionInterface.register(_NAME, None)  # which would keep all traces
        if len(traces) != len(streams) - 1:
            raise SpecError(
                f"{self._name} has {len(streams) - 1} layers, and transformers handed over the attention of "
                f"{len(traces)}; use a model such as GPT-2, OPT, Pythia, Llama or Mistral"
            )
        for layer, trace in enumerate(traces):
            yield LayerTrace(layer, softmax(), trace, streams[layer], streams[layer + 1])

    def _require_plain(self, options: dict[str, Any], mask: Tensor | None, plain: Tensor) -> None:
        rule = "probes of a checkpoint need causal softmax attention"
        for name, value in options.items():
            if name not in _HARMLESS and value is not None:
                raise SpecError(f"{self._name} has {name}, and {rule}; use another model")
        if mask is not None and not torch.equal(mask.bool().expand(-1, -1, *plain.shape), plain.expand_as(mask)):
            raise SpecError(f"{self._name} hides other keys, as a window does, and {rule}; use shorter sequences")
