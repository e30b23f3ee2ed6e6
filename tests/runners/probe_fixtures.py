"""Layers with given weights for probes, and the values that probes record."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ablate.training.probes import Probe, ProbeArray, Probed, ProbeInput
from ablate.training.probes.probe import Probing, run_probes
from ablate.training.tasks import LinearFunctions
from ablate.training.tasks.task import Batch, Task
from ablate.variants import Heads, Operator, Tokens, Transformer, gpt2
from ablate.variants.attend import AttentionOutput
from ablate.variants.model.head_attention import AttentionTrace
from ablate.variants.model.transformer import LayerTrace

Row = tuple[Any, ...]


def by_place(records: Sequence[Probed | ProbeArray]) -> dict[Row, float]:
    """Return values by (name, layer, head, *point), and require that places are unique."""
    rows = [each for each in records if isinstance(each, Probed)]
    values = {(row.name, row.layer, row.head, *sorted(row.point.items())): row.value for row in rows}
    assert len(values) == len(rows)
    return values


def make_layer(
    weights: Tensor, mask: Tensor | None = None, operator: Operator | None = None, **attended: Tensor | None
) -> LayerTrace:
    """Make a layer with the weights [B, H, T, T]. Its heads have 3 channels, its streams 5, drawn at random."""
    batch, heads, length, _ = weights.shape
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(batch, heads, length, 3, generator=generator, dtype=torch.float64) for _ in range(3))
    streams = [torch.randn(batch, length, 5, generator=generator, dtype=torch.float64) for _ in range(2)]
    parts = {"output": v, "weights": weights, "ground": None, "extra": None, "logits": weights, **attended}
    return LayerTrace(
        1, operator or Operator(), AttentionTrace(Heads(q, k, v, mask), {}, AttentionOutput(**parts)), *streams
    )  # type: ignore[arg-type]


def probe_layer(probe: Probe, layer: LayerTrace, seen: Any = None) -> dict[Row, float]:
    """Return the values that a probe records for a layer."""
    records = list(probe.of_layer(layer, seen))
    require_declared(records, probe)
    return by_place(records)


def require_declared(records: Sequence[Probed | ProbeArray], *probes: Probe) -> None:
    """Fail if a record is not among the `rows` of the probes."""
    declared = {(row.name.split(".")[0], row.per, row.point) for probe in probes for row in probe.rows}
    for each in records:
        if isinstance(each, Probed):
            per = "layer and head" if each.head is not None else "model" if each.layer is None else "layer"
            assert (each.name.split(".")[0], per, tuple(each.point)) in declared, each


def make_model(operator: Operator, inputs: Any = None, **changes: object) -> Transformer:
    """Make a model of two layers of two heads, with learned positions, in float64."""
    backbone = gpt2(layers=2, heads=2, width=16, max_positions=80).changed(**changes)
    return Transformer(backbone, [operator] * backbone.layers, inputs=inputs or Tokens(256), seed=3).double().eval()


def probe_model(
    model: Transformer, inputs: Tensor, *probes: Probe, task: Task | None = None, visible: Tensor | None = None
) -> list[Probed | ProbeArray]:
    """Return the records of probes for a model."""
    batch = Batch(inputs, inputs, visible)
    seen = ProbeInput(model, task or LinearFunctions(), batch, 7, [1.0, 2.0, 4.0])
    with torch.inference_mode():
        records = list(run_probes(Probing(probes=probes), seen))
    require_declared(records, *probes)
    return records
