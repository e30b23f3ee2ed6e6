"""Values that a program reports: lines of JSON in the file named by ABLATE_METRICS, and patterns over its output."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from ablate.grid.errors import SpecError
from ablate.grid.values import require_whole, show

if TYPE_CHECKING:
    from ablate.runners.attempts.trial_run import TrialRun

_AT_ONCE: Final = 2**20
"""Bytes that are read at once, and the longest line."""
_KEPT: Final = 4096
"""Bytes by which a file is known again."""


def patterns_of(texts: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """Compile patterns with named groups. Raises ValueError."""
    patterns = []
    for text in texts:
        try:
            pattern = re.compile(text)
        except re.error as error:
            raise ValueError(f"{text!r} is no regular expression ({error})") from error
        if not set(pattern.groupindex) - {"step"}:
            raise ValueError(f"{text!r} names no value; name a group like its metric, (?P<val_loss>\\S+)")
        patterns.append(pattern)
    return tuple(patterns)


@final
class Report:
    """Takes the values that a program reports into its run.

    Raises SpecError for what is no value; the text says where it stands.
    """

    def __init__(
        self,
        run: "TrialRun",
        total: int | None,
        metrics: Sequence[re.Pattern[str]],
        evaluations: Sequence[re.Pattern[str]],
        file: Path,
        step: int = 0,
    ) -> None:
        self._run, self._total, self._file = run, total, file
        self._patterns = [(each, True) for each in metrics] + [(each, False) for each in evaluations]
        self.step = step
        """The highest step so far."""
        self.values = 0
        """Values so far."""
        self.unused = {each.pattern for each, _ in self._patterns}
        """Patterns that have met no line yet."""
        self._place = self._lines = 0
        self._half = self._end = b""
        """Half a line; the last bytes that were read."""

    def take_output(self, line: str) -> None:
        """Take the values of a line of output."""
        for pattern, logs in self._patterns:
            if (match := pattern.search(line)) is None:
                continue
            self.unused.discard(pattern.pattern)
            texts = {name: text for name, text in match.groupdict().items() if text is not None}
            step = self._at(_whole(texts.pop("step"), line) if "step" in texts else None)
            values = {name: _number(text, name, line) for name, text in texts.items()}
            self.values += len(values)
            if logs:
                self._run.log(step, values)
            else:
                for name, value in values.items():
                    self._run.evaluate(step, name, value)

    def take_file(self, *, last: bool = False) -> bool:
        """Take the lines that the program has added to its file; return True if there may be more.

        With `last`, the program has ended well, and half a line is an error.
        """
        data = self._read(last=last)
        *lines, self._half = (self._half + data).split(b"\n")
        if last and not data and self._half:
            lines, self._half = [*lines, self._half], b""
        for line in lines:
            self._lines += 1
            if line.strip():
                self._take_line(line)
        if len(self._half) > _AT_ONCE:
            raise SpecError(f"{self._where()} is longer than 1 MiB; a line holds the values of one step")
        return bool(data)

    def _read(self, *, last: bool) -> bytes:
        """Read on. A file that is being written anew is read once it has again what was read."""
        try:
            with self._file.open("rb") as file:
                file.seek(self._place - len(self._end))
                end, data = file.read(len(self._end)), file.read(_AT_ONCE)
        except FileNotFoundError:
            end, data = b"", b""
        if end != self._end:
            if last or len(end) == len(self._end):
                raise SpecError(
                    f"the file in ABLATE_METRICS was written anew after line {self._lines}; a program appends to it: "
                    'open it by mode "a"'
                )
            return b""
        self._place += len(data)
        self._end = (end + data)[-_KEPT:]
        return data

    def _take_line(self, line: bytes) -> None:
        try:
            record = json.loads(line)
        except ValueError as error:
            told = show(line.decode("utf-8", "replace"))
            raise SpecError(
                f"{self._where()} is no whole JSON ({told}); a line is one object and ends with a line feed"
            ) from error
        if not isinstance(record, dict):
            raise SpecError(
                f'{self._where()} is {show(record)}; a line is an object such as {{"step": 1, "loss": 0.5}}'
            )
        try:
            self._take(record)
        except (SpecError, TypeError, OSError, ValueError) as error:
            raise SpecError(f"{self._where()}: {error}") from error

    def _take(self, record: dict[str, Any]) -> None:
        step = self._at(record.pop("step", None))
        kind = next((name for name in _KINDS if name in record), None)
        known = _KINDS.get(kind or "", ())
        if kind is not None and (unknown := sorted(record.keys() - {kind, *known})):
            raise SpecError(
                f"{unknown[0]!r} does not belong to a line with {kind!r}; it may have "
                f"{', '.join(known) or 'nothing else'}"
            )
        content: Any = record.pop(kind) if kind else record
        self.values += 1
        if kind == "evaluate":
            self._run.evaluate(step, content, record.pop("value", None), **record)
        elif kind == "probe":
            self._run.probe(step, content, **record)
        elif kind == "cost":
            self._run.cost(**content)
        elif kind == "fail":
            self._run.fail(str(content), **record)
        elif kind == "artefact":
            self._run.artefact(content, _arrays(Path(record["file"])))
        else:
            self._run.log(step, content)

    def _at(self, step: object) -> int:
        at = self.step if step is None else require_whole(step, "the step")
        if at > self.step:
            self.step = at
            self._run.note_step(at, self._total and max(at, self._total))
        return at

    def _where(self) -> str:
        return f"line {self._lines} of the file in ABLATE_METRICS"


_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "evaluate": ("value", "point", "items", "se_items"),
    "probe": ("value", "layer", "head", "point"),
    "cost": (),
    "fail": ("reason",),
    "artefact": ("file",),
    "log": (),
}
"""Keys that say what a line is, and what else it may have; a line without any has metrics by name."""


def _arrays(file: Path) -> dict[str, Any]:
    import numpy as np

    with np.load(file, allow_pickle=False) as arrays:
        read = dict(arrays)
    file.unlink()
    return read


def _whole(text: str, line: str) -> int:
    try:
        return int(text.replace(",", ""))
    except ValueError as error:
        raise SpecError(
            f"{text!r}, which a pattern took as the step, is no whole number; the line is {show(line)}"
        ) from error


def _number(text: str, name: str, line: str) -> float:
    try:
        return float(text.rstrip(",;").replace(",", ""))
    except ValueError as error:
        raise SpecError(f"{text!r}, which a pattern took as {name}, is no number; the line is {show(line)}") from error
