"""No learned key."""

from typing import ClassVar, Literal

from variants.stages.families import Extra


class NoExtra(Extra):
    """A query sees keys of the sequence only."""

    source: ClassVar[str] = "Attention Is All You Need, eq. 1"

    kind: Literal["none"] = "none"

    def pair(self) -> None:
        return None

    def oracle(self) -> None:
        return None
