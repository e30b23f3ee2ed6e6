"""The values that an ingest keeps for views equal their definition, whatever happened to the shards and when."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
from synthetic import plan_header, plan_lines, publish_grid, write_end, write_shard, write_start

from ablate.store.files.layout import Layout
from ablate.store.ingest.ingest import ingest
from ablate.store.ingest.rebuild import rebuild

SUBMISSION = "20260102T030405-0a1b2c"
NAMES = ("loss", "grad_norm")
ENDS = ("ok", "failed", "stopped", None)
Row = tuple[str, int, int, str, float]


@dataclass
class History:
    """Random events of a campaign, and what is true of it."""

    layout: Layout
    draw: random.Random
    trials: list[str] = field(default_factory=list)
    attempts: dict[tuple[str, int], tuple[str | None, int]] = field(default_factory=dict)
    """By trial and attempt how it ended, and at which step."""
    resumed: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """By trial and attempt the attempt whose checkpoint it went on from, and the step of that."""
    unread: set[tuple[str, int]] = field(default_factory=set)
    """Attempts whose start.json is damaged."""
    shards: dict[Path, list[Row]] = field(default_factory=dict)
    whole: dict[Path, bytes] = field(default_factory=dict)
    """The bytes of damaged shards before the damage."""

    def __post_init__(self) -> None:
        lines = plan_lines(("softmax", "SSA"), range(2), "g", {})
        publish_grid(self.layout, plan_header(lines, "g", {}, ("softmax", "SSA")), lines)
        self.trials = [line["trial"] for line in lines]

    def happen(self) -> None:
        """One event."""
        events = [self._attempt, self._shard, self._damage, self._restore, self._unread]
        self.draw.choices(events, [6, 9, 3, 2, 1])[0]()

    def _attempt(self) -> None:
        """A trial is begun once more, or a begun attempt ends in another way than was known."""
        trial = self.draw.choice(self.trials)
        number = self.draw.randint(1, 1 + sum(key == trial for key, _ in self.attempts))
        status, step = self.draw.choice(ENDS), self.draw.randint(2, 6)
        self.resumed.pop((trial, number), None)
        self.unread.discard((trial, number))
        if number > 1 and self.draw.random() < 0.6:
            self.resumed[trial, number] = self.draw.randint(1, number - 1), self.draw.randint(0, 5)
        origin = dict(zip(("attempt", "step"), self.resumed.get((trial, number), ()), strict=False)) or None
        write_start(self.layout, trial, number, resumed_from=origin)
        self.layout.end(trial, number).unlink(missing_ok=True)
        if status is not None:
            write_end(self.layout, trial, number, status=status, step=step)
        self.attempts[trial, number] = status, step

    def _shard(self) -> None:
        """A shard of one or two attempts; steps overlap with those of others."""
        places = self.draw.sample(sorted(self.attempts), min(len(self.attempts), self.draw.randint(1, 2)))
        rows = [
            (*place, step, name, self.draw.random())
            for place in places
            for begin in [self.draw.randint(0, 4)]
            for step in range(begin, begin + 3)
            for name in NAMES[: self.draw.randint(1, 2)]
            if not any((*place, step, name) == known[:4] for known in self._all())
        ]
        if rows:
            columns: dict[str, list[Any]] = dict(
                zip(("trial", "attempt", "step", "name", "value"), map(list, zip(*rows, strict=True)), strict=True)
            )
            columns["wall_s"] = [0.0] * len(rows)
            number = len(self.shards)
            path = write_shard(self.layout, "metric", columns, submission=SUBMISSION, worker=0, sequence=number)
            self.shards[path] = rows

    def _all(self) -> Iterator[Row]:
        return (row for rows in self.shards.values() for row in rows)

    def _damage(self) -> None:
        sound = [path for path in self.shards if path not in self.whole]
        if sound:
            path = self.draw.choice(sound)
            self.whole[path] = path.read_bytes()
            path.write_bytes(self.whole[path][:-1])

    def _restore(self) -> None:
        if self.whole:
            path = self.draw.choice(list(self.whole))
            path.write_bytes(self.whole.pop(path))

    def _unread(self) -> None:
        if self.attempts:
            place = self.draw.choice(sorted(self.attempts))
            self.layout.start(*place).write_bytes(b"{")
            self.unread.add(place)

    def curves(self) -> set[tuple[str, str, int, float]]:
        """By the definition in words: of each trial, name and step the value of the latest attempt that counts."""
        found: dict[tuple[str, str, int], tuple[int, float]] = {}
        for trial in self.trials:
            counted = self._counted(trial)
            for path, rows in self.shards.items():
                for key, attempt, step, name, value in rows:
                    if key == trial and path not in self.whole and step <= counted.get(attempt, -1):
                        found[trial, name, step] = max(found.get((trial, name, step), (0, 0.0)), (attempt, value))
        return {(trial, name, step, value) for (trial, name, step), (_, value) in found.items()}

    def final(self) -> set[tuple[str, str, int, float]]:
        """By the definition in words: of each ok trial and name the value at the last step that counts."""
        finished = {trial: last for trial in self.trials if (last := self._result(trial)) is not None}
        ends = {trial: self.attempts[trial, last][1] for trial, last in finished.items()}
        found: dict[tuple[str, str], tuple[int, float]] = {}
        for trial, name, step, value in self.curves():
            if trial in finished:
                found[trial, name] = max(found.get((trial, name), (-1, 0.0)), (step, value))
        return {
            (trial, name, step, value)
            for (trial, name), (step, value) in found.items()
            if step >= ends[trial] or not self.whole
        }

    def _counted(self, trial: str) -> dict[int, float]:
        """The attempts that the result came from, each with the last step that it gave."""
        at = self._result(trial) or max((n for n in self._readable(trial)), default=None)
        found, until = dict[int, float](), math.inf
        while at is not None:
            found[at] = until
            at, step = self.resumed.get((trial, at), (None, 0)) if at in self._readable(trial) else (None, 0)
            until = min(until, step)
        return found

    def _readable(self, trial: str) -> list[int]:
        return [n for key, n in self.attempts if key == trial and (key, n) not in self.unread]

    def _result(self, trial: str) -> int | None:
        return max((n for n in self._readable(trial) if self.attempts[trial, n][0] == "ok"), default=None)


PLAIN = """
    SELECT shard, 'metric' AS "table", trial, attempt, name, max(step) AS step, arg_max(value, step) AS value
    FROM metric GROUP BY ALL
"""
THROUGH_ROWS = """
    SELECT trial, name, max(m.step) AS step, arg_max(m.value, m.step) AS value
    FROM v_metric m JOIN trial t USING (trial)
    WHERE t.state = 'done' GROUP BY ALL HAVING max(m.step) >= any_value(t.step) OR NOT EXISTS (FROM bad_shard)
"""


def test_last_values_equal_their_definition_after_any_history(tmp_path: Path) -> None:
    history = History(Layout(tmp_path), random.Random(0))
    history.attempts[history.trials[0], 1] = (None, 0)
    write_start(history.layout, history.trials[0], 1)
    seen = set()
    for _ in range(9):
        for _ in range(6):
            history.happen()
        ingest(tmp_path)
        with duckdb.connect(str(history.layout.live)) as connection:
            kept = set(connection.execute("FROM last_value").fetchall())
            final = connection.execute("SELECT trial, name, step, value FROM v_final").fetchall()
            curves = connection.execute("SELECT trial, name, step, value FROM v_metric").fetchall()
            assert kept == set(connection.execute(PLAIN).fetchall())
            assert set(final) == set(connection.execute(THROUGH_ROWS).fetchall())
        assert len(set(final)) == len(final)
        assert set(final) == history.final()
        assert len(set(curves)) == len(curves)
        assert set(curves) == history.curves()
        seen |= set(final)
    assert seen  # or nothing was compared
    rebuild(tmp_path)
    with duckdb.connect(str(history.layout.live)) as connection:
        assert set(connection.execute("SELECT trial, name, step, value FROM v_final").fetchall()) == history.final()
