"""The checks of a verdict: what has to hold before a difference may be called that of the component."""

from typing import Final, Literal, NamedTuple, get_args

CheckName = Literal["on", "tuned", "finished", "noise", "control"]
Answer = Literal["yes", "no", "unknown", "-"]

ANSWERS: Final[tuple[Answer, ...]] = get_args(Answer)
CHECK_NAMES: Final[tuple[CheckName, ...]] = get_args(CheckName)


class Check(NamedTuple):
    """The answer of one check about one comparison; "-" where the question does not arise."""

    name: CheckName
    answer: Answer
    reason: str
    """A sentence with the number that the answer rests on."""
    number: float | None = None
    """That number, in the unit that the reason states."""
    word: str = ""
    """The word of a knock-out, such as "off" or "mixed"; "nothing learned" for noise; otherwise empty."""
