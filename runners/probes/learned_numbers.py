"""Where training has moved the operators' numbers: `number.<stage>.<field>` for every layer and head.

Their way there takes evaluations on the way: `training.evaluate_every`. Where they start, the operator says.
"""

from typing import ClassVar, Literal

from runners.probes.probe import Found, Probe, Probed, ProbeInput, RowInfo


class LearnedNumbers(Probe):
    """The value of every learned number; of a vector its norm, of a per-query number its value at a zero query."""

    at_divergence: ClassVar[bool] = True
    rows: ClassVar[tuple[RowInfo, ...]] = (RowInfo("number.STAGE.FIELD", "the number's own"),)
    cost: ClassVar[str] = "reads the parameters"

    kind: Literal["learned_numbers"] = "learned_numbers"

    def of_model(self, seen: ProbeInput) -> Found:
        for layer, head, name, value in seen.model.numbers():
            yield Probed(f"number.{name}", value, layer, head)
