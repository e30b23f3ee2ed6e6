"""Weight of a ground state or sink, and the share of keys below the relevance threshold.

    w_i0                               the weight of a ground state or sink
    share of visible keys, a_ij < gamma

"Principled Attention", sections 3.1 and 3.2.1. a_ij is the logit after margin and gate. A key at the threshold is
relevant. A sink has no threshold.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

from ablate.training.probes.attention_rows import AttentionRows, by_head, mean
from ablate.training.probes.probe import Found, Probe, ProbeInput, RowInfo
from ablate.training.tasks.task import Task
from ablate.variants import Ground, Operator
from ablate.variants.model.foreign import AnyBackbone
from ablate.variants.model.transformer import LayerTrace


class GroundMass(Probe):
    """`ground_mass` by head, over queries and sequences, and `below_threshold`, over visible pairs and signals."""

    rows: ClassVar[tuple[RowInfo, ...]] = (RowInfo("ground_mass", "weight"), RowInfo("below_threshold", "share of 1"))

    kind: Literal["ground_mass"] = "ground_mass"

    def check(self, task: Task, model: AnyBackbone, operators: Sequence[Operator]) -> None:  # noqa: ARG002
        if not any(operator.normaliser.has_ground for operator in operators):
            self.refuse("a ground state or sink", operators, "principled_ground() or learned_sink()")

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:  # noqa: ARG002
        attended, rows = layer.worked.attended, AttentionRows(layer)
        if attended.ground is not None:
            yield from by_head("ground_mass", layer.layer, mean(attended.ground[..., 0], rows.real, (0, 2)))
        if isinstance(layer.operator.normaliser, Ground):
            gamma = layer.worked.numbers["normaliser.threshold"]
            logits = attended.logits if attended.logits.dim() == 5 else attended.logits[None]
            below = (logits < gamma).to(attended.weights.dtype).expand(-1, *attended.weights.shape)
            yield from by_head("below_threshold", layer.layer, mean(below, rows.seen, (0, 1, 3, 4)))
