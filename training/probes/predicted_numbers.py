"""Numbers that vary by query or token: `predicted.<stage>.<field>`. `learned_numbers` records their start only.

Records their mean and standard deviation over the tokens of the sequences, and over the channels of a vector. Examples
are the alpha of "Affine-Scaled Attention", lambda per query, the opening of output gates, and thresholds and strengths
per query.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

from ablate.training.probes.attention_rows import AttentionRows, by_head, mean
from ablate.training.probes.probe import Found, Probe, ProbeInput, RowInfo
from ablate.training.tasks.task import Task
from ablate.variants import Operator
from ablate.variants.model.foreign import AnyBackbone
from ablate.variants.model.transformer import LayerTrace


class PredictedNumbers(Probe):
    """`predicted.<number>` and `predicted_sd.<number>` by head, of every number per query or per token."""

    rows: ClassVar[tuple[RowInfo, ...]] = (
        RowInfo("predicted.STAGE.FIELD", "the number's own"),
        RowInfo("predicted_sd.STAGE.FIELD", "the number's own"),
    )

    kind: Literal["predicted_numbers"] = "predicted_numbers"

    def check(self, task: Task, model: AnyBackbone, operators: Sequence[Operator]) -> None:  # noqa: ARG002
        if not any(_predicted_names(operator) for operator in operators):
            self.refuse("a number per query or per token", operators, "learned_numbers")

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:  # noqa: ARG002
        real = AttentionRows(layer).real
        for name in _predicted_names(layer.operator):
            heads = layer.operator.heads_of(name, real.shape[1])
            values, counted = layer.worked.numbers[name].float(), real[:, heads, :, None]
            middle, there = mean(values, counted, (0, 2, 3))
            variance, _ = mean((values - middle[:, None, None]).square(), counted, (0, 2, 3))
            for statistic, by in (("predicted", middle), ("predicted_sd", variance.sqrt())):
                yield from by_head(f"{statistic}.{name}", layer.layer, (by, there), first=heads.start)


def _predicted_names(operator: Operator) -> list[str]:
    return [name for name, number in operator.numbers().items() if {"query", "token"} & set(number.per)]
