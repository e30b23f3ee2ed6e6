"""Where training has moved the operators' numbers: `number.<stage>.<field>` for every layer and head."""

from typing import Literal

from runners.probes.probe import Found, Probe, Probed, Seen


class LearnedNumbers(Probe):
    """The value of every learned number; of a vector its norm, of a per-query number its value at a zero query."""

    kind: Literal["learned_numbers"] = "learned_numbers"

    def of_model(self, seen: Seen) -> Found:
        for layer, head, name, value in seen.model.numbers():
            yield Probed(f"number.{name}", value, layer, head)
