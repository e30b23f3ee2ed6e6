"""Probes of a public checkpoint: a causal language model in a local Hugging Face directory.

The package `transformers` computes the model and hands over the queries, keys and values of every layer. Attention is
the definition of this package, so that probes measure what they measure in models trained here.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import torch
from torch import Tensor, nn

from grid.errors import SpecError
from runners.probes.probe import Probe, Probed, ProbeInput, Probing, look, probe_model
from runners.tasks.distillation.hugging_face_model import HuggingFaceModel
from runners.tasks.optional_packages import require_package
from runners.tasks.task import Task
from variants import Heads, softmax
from variants.attend import definition
from variants.model.block import AttentionTrace
from variants.model.transformer import LayerTrace

if TYPE_CHECKING:
    from store.campaign import Campaign

_NAME: Final = "ablate"
"""Name of our attention in the package."""
_REFUSED: Final = ("softcap", "s_aux", "position_bias", "sliding_window")
"""Arguments of calls that are not plain softmax attention."""


def probe_checkpoint(
    directory: str | Path, task: Task, probing: Probing, campaign: "Campaign", *, grid: str = "checkpoints"
) -> None:
    """Log the probes of a checkpoint as a run of `campaign`, with the name of its directory as label.

    A checkpoint that was probed alike before is skipped. Queries, keys, values and maps of all layers are in memory at
    once. The stream after the last layer is that after the model's last norm, as in the released code of paper 004.

    Args:
        directory: config.json and .safetensors files, as `save_pretrained` writes them.
        task: sequences of tokens, with the model's own tokenizer: `Text(tokenizer=TokenizerFile(...))`.
        probing: probes of layers, which record rows.
        campaign: where the run is logged; it is made if need be.
        grid: the grid of the run.

    Raises:
        SpecError: the directory holds no such model, or one without softmax attention; the task has other tokens or
            longer sequences; a probe needs more than layers.
        EnvironmentProblem: the package transformers is missing.
    """
    for probe in probing.probes:
        if type(probe).of_model is not Probe.of_model or any(row.per == "file" for row in probe.rows):
            raise SpecError(
                f"probes of a checkpoint measure its layers and record rows; {probe.label} does not; leave it out"
            )
    try:
        source = HuggingFaceModel(directory=str(directory))
        source.check(task)
    except ValueError as error:
        raise SpecError(str(error)) from error
    config = {"model": source.content_hash, "task": task.data(), "probing": probing.data()}
    label = Path(source.directory).name
    if campaign.finished(label=label, seed=0, config=config):
        return
    checkpoint: Any = _Checkpoint(source.open(task).model, source.name())
    seen = ProbeInput(checkpoint, task, probe_model(task.open(), probing), 0, ())
    found = [each for each in look(probing, seen) if isinstance(each, Probed)]
    with campaign.start(grid, label=label, seed=0, config=config) as run:
        for each in found:
            run.probe(0, each.name, each.value, layer=each.layer, head=each.head, point=each.point)


@final
class _Checkpoint:
    """A model of the package whose layers can be traced."""

    def __init__(self, model: Any, name: str) -> None:
        self._model, self._name = model, name

    @torch.inference_mode()
    def trace_layers(self, inputs: Tensor, visible: Tensor | None) -> Iterator[LayerTrace]:
        """Yield the layers on token ids [B, T] from the bottom; `visible` is as in `Batch`."""
        traces: list[AttentionTrace] = []
        mask = None if visible is None else visible[:, None].tril()

        def attend(
            _module: nn.Module,
            q: Tensor,
            k: Tensor,
            v: Tensor,
            _mask: Tensor | None,
            scaling: float | None = None,
            **given: Any,
        ) -> tuple[Tensor, Tensor]:
            self._require_plain(given, length=q.shape[-2])
            groups, root = q.shape[1] // k.shape[1], math.sqrt(q.shape[-1])
            if scaling is not None:
                q = q * (scaling * root)  # the definition divides by the root
            heads = Heads(q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1), mask)
            traces.append(AttentionTrace(heads, {}, definition(softmax(), heads, {})))
            attended = traces[-1].attended
            return attended.output.transpose(1, 2), attended.weights

        transformers = require_package("transformers", by="a public checkpoint", extra="transformers")
        transformers.AttentionInterface.register(_NAME, attend)
        self._model.set_attn_implementation(_NAME)
        streams = self._model(input_ids=inputs, use_cache=False, output_hidden_states=True).hidden_states
        if len(traces) != len(streams) - 1:
            raise SpecError(
                f"transformers hands over the attention of a checkpoint's layers; {self._name} has {len(streams) - 1} "
                f"layers and {len(traces)} were handed over; use a model such as GPT-2, OPT, Pythia, Llama or Mistral"
            )
        for layer, trace in enumerate(traces):
            yield LayerTrace(layer, softmax(), trace, streams[layer], streams[layer + 1])

    def _require_plain(self, given: dict[str, Any], *, length: int) -> None:
        for name in _REFUSED:
            value = given.get(name)
            if value is not None and not (name == "sliding_window" and value >= length):
                raise SpecError(f"probes of a checkpoint need plain softmax attention; that of {self._name} has {name}")
