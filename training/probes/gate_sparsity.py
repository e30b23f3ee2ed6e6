"""Sparsity of an output gate: the share of its values below a bound, over tokens, channels and sequences.

"Gated Attention" (Qiu et al. 2025), where models with mostly closed gates have no sinks.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ablate.training.probes.attention_rows import AttentionRows, by_head, mean
from ablate.training.probes.probe import Found, Probe, ProbeInput, RowInfo
from ablate.training.tasks.task import Task
from ablate.variants import Operator
from ablate.variants.model.foreign import AnyBackbone
from ablate.variants.model.transformer import LayerTrace

_OPENING = "output_gate.opening"


class GateSparsity(Probe):
    """`gate_sparsity` by head, at {"below": below}: the share of openings below it."""

    rows: ClassVar[tuple[RowInfo, ...]] = (RowInfo("gate_sparsity", "share of 1", "layer and head", ("below",)),)

    kind: Literal["gate_sparsity"] = "gate_sparsity"
    below: Annotated[float, Field(gt=0)] = 0.1
    """A gate below this value counts as closed."""

    def check(self, task: Task, model: AnyBackbone, operators: Sequence[Operator]) -> None:  # noqa: ARG002
        if not any(_OPENING in operator.numbers() for operator in operators):
            self.refuse("an output gate", operators, "gated_heads() or gated_elements()")

    def records(self) -> Sequence[tuple[str, Mapping[str, float]]]:
        return [("gate_sparsity", {"below": self.below})]

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:  # noqa: ARG002
        opening = layer.worked.numbers.get(_OPENING)
        if opening is not None:
            real = AttentionRows(layer).real[..., None]
            closed = (opening < self.below).float().expand(*real.shape[:-1], -1)
            yield from by_head("gate_sparsity", layer.layer, mean(closed, real, (0, 2, 3)), {"below": self.below})
