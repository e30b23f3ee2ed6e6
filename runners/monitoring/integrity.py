"""Integrity of a campaign: every promised file, every hash."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile, ZipFile

from ablate.grid.errors import AblateError, EnvironmentProblem, NotFoundError, StoreError
from ablate.runners.attempts.submission_record import read_submission_record
from ablate.store.database.connection import DatabaseBroken
from ablate.store.files.annotations import FILE as ANNOTATIONS
from ablate.store.files.atomic import environment_problem, is_temporary, read_json
from ablate.store.files.attempt_records import AttemptRow, evaluation_shards, read_attempt, read_evaluation
from ablate.store.files.layout import Layout, Unlisted
from ablate.store.files.plans import plan_signatures, read_plan
from ablate.store.files.removals import read_removals
from ablate.store.files.saved_texts import QUERIES, VIEWS
from ablate.store.files.shards import TABLES, BadShard, verify_shard
from ablate.store.store import Store

AGAIN = "restore the file, or run `ablate run SPEC --rerun-stale`, which trains the trial again"
EVALUATE = "restore the file, or run the same `ablate evaluate` with --again"
PLAN = "restore the file, or run the same `ablate run` again, which writes the plan again"
SUBMITTED = "restore the file; results stay, and `ablate repro` and `ablate cancel` need it"
SNAPSHOT = "restore the file, or submit the same code again, which writes it again"
CHECKPOINT = "delete the file; the trial goes on from the checkpoint before it, or from the beginning"
KEEP = "restore the file; do not run `ablate check --rebuild` before, since only the database has these rows"
REBUILD = "run `ablate check --rebuild`, which makes the database again from the files"
LINK = "remove the link; the next command makes the database again from the files"
UPGRADE = "upgrade ablate"
SAVE = "save it again"
ANNOTATE = "restore the file, or delete the line"
REMOVAL = "restore the file; it says which rows of shards are left out"
CACHE = "delete the file; a worker writes it again"
PATH = "move away what stands there, or repair the disk; other trials are not affected"
_REMEDIES = {ANNOTATIONS: ANNOTATE, "removals/": REMOVAL, "submissions/": SUBMITTED, "grids/": PLAN}
"""By the beginning of a file's name."""

_HASHED = re.compile(r"(?:.*\.)?(?P<blake2b>[0-9a-f]{32})\.(?:pt|tar)")


class Damage(NamedTuple):
    """A fault of a campaign."""

    file: str
    """Relative to the campaign; "" if it is not about one file."""
    problem: str
    remedy: str


Fault = tuple[Path | str, str, str]
"""A file (a path, or a name relative to the campaign), its problem and a remedy."""


def check_campaign(root: Path) -> list[Damage]:
    """Ingest what is new, read every file of the campaign `root`, and list damages.

    Raises NotFoundError if there is no campaign. Raises EnvironmentProblem if its own directory cannot be listed.
    """
    layout = Layout(root)
    unique: dict[tuple[str, str], Damage] = {}
    parts = (_check_database, _check_plans, _check_submissions, _check_attempts, _check_shards, _check_texts)
    for check in (*parts, _check_written):
        for file, problem, remedy in check(layout):
            name = file.relative_to(root).as_posix() if isinstance(file, Path) else file
            unique.setdefault((name, "" if name else problem), Damage(name, problem, remedy))
    return sorted(unique.values())


def _check_database(layout: Layout) -> Iterator[Fault]:
    """Read every block of the database; list what the store warns of, and ingested shards whose file is gone."""
    try:
        layout.check_store()
    except StoreError as error:
        yield (layout.store, str(error), LINK)
        return
    try:
        yield from _read_database(layout)
    except DatabaseBroken as error:
        yield (layout.live, str(error), REBUILD)
    except StoreError as error:
        yield ("", str(error), UPGRADE)


def _read_database(layout: Layout) -> Iterator[Fault]:
    with Store.open(layout.root) as store:
        store.content_hash()
        files = {path.name for path in layout.shards()}
        ingested = "SELECT DISTINCT coalesce(inside, file) AS file FROM shard WHERE NOT later ORDER BY file"
        bad = {*store.bad_shards()["file"], *store.bad_records()["file"]}
        for name in store.sql(ingested)["file"]:
            if name not in files:
                yield (layout.shard(name), "it is missing; its rows are in the database", KEEP)
        for name, reason in store.bad_shards().rows():
            later = next(layout.trials.glob(f"*/*/*/evaluations/{name}"), None)
            path = later or next((each for each in layout.shards() if each.name == name), layout.shard(name))
            yield (path, reason, EVALUATE if later else AGAIN)
        for name, reason in store.bad_records().rows():
            yield (name, reason, _remedy(name))
        orphans = "SELECT trial, attempt FROM recorded ANTI JOIN attempt USING (trial, attempt) ORDER BY ALL"
        for trial, attempt in store.sql(orphans).rows():
            path = layout.start(trial, attempt)
            yield (path, "it is missing, and shards have rows of the attempt", AGAIN)
        for warning in store.damage():
            if not any(name in warning for name in bad):
                yield ("", warning, "see the other lines")


def _remedy(file: str) -> str:
    remedies = (remedy for beginning, remedy in _REMEDIES.items() if file.startswith(beginning))
    return next(remedies, EVALUATE if "/evaluations/" in file else AGAIN)


def _check_plans(layout: Layout) -> Iterator[Fault]:
    planned = set(read_removals(layout).last)
    submitted: dict[str, set[str]] = {}
    for source in plan_signatures(layout):
        plan = read_plan(layout, source)
        for file, reason in plan.problems:
            yield (file, reason, _remedy(file))
        for line in plan.lines:
            if source.startswith("grids/"):
                planned.add(line["trial"])
            else:
                submitted.setdefault(line["grid"], set()).add(line["trial"])
    for grid in submitted.keys() - set(layout.planned_grids()):  # its trials are elsewhere if it was renamed or removed
        if not submitted[grid] <= planned:
            yield (layout.grid_header(grid), "it is missing, and submissions have trials of the grid", PLAN)
    for path in layout.grids.glob("*.judged"):
        yield from _check_json(path, PLAN)


def _check_submissions(layout: Layout) -> Iterator[Fault]:
    for directory in sorted(path for path in layout.submissions.glob("*") if path.is_dir()):
        manifest = directory / "manifest.jsonl"
        if not manifest.is_file() and any(directory.glob("*.json")):
            yield (manifest, "it is missing", SUBMITTED)
        try:
            snapshot = (read_submission_record(layout, directory.name).snapshot or {}).get("tar")
            if snapshot is not None and not layout.snapshot_tar(snapshot).is_file():
                path = layout.snapshot_tar(snapshot)
                yield (path, f"submission {directory.name} names it", SNAPSHOT)
        except NotFoundError:
            pass
        except (StoreError, EnvironmentProblem) as error:
            yield (directory / "submission.json", str(error), SUBMITTED)
        for path in sorted(directory.rglob("*.json")):
            if not is_temporary(path) and path.name != "submission.json":
                yield from _check_json(path, CACHE if path.parent.name == "seen" else SUBMITTED)
    for path in sorted(layout.snapshots.glob("*.tar")):
        yield from _check_hash(path, SNAPSHOT)


def _check_attempts(layout: Layout) -> Iterator[Fault]:
    known: set[str] = set()
    last: tuple[str, int] = ("", 0)
    removed = read_removals(layout).last
    unlisted: list[Unlisted] = []
    for key, attempt, directory in layout.every_attempt(unlisted=unlisted):
        before = max(last[1] if key == last[0] else 0, removed.get(key, 0))
        for number in range(before + 1, attempt):
            yield (layout.start(key, number), f"it is missing, and attempt {attempt} is there", AGAIN)
        last = key, attempt
        row, problems = read_attempt(layout, key, attempt)
        for file, reason in problems:
            yield (file, reason, AGAIN)
        if row is not None and row["submission"] not in known and (name := _record_of(row)):
            known.add(str(row["submission"]))
            for path in (layout.submission(str(row["submission"])) / name, layout.manifest(str(row["submission"]))):
                if not path.is_file():
                    yield (path, "it is missing, and attempts name it", SUBMITTED)
        yield from _check_attempt_files(layout, key, attempt, Path(directory))
    yield from ((path, reason, PATH) for path, reason in unlisted)


def _record_of(row: AttemptRow) -> str | None:
    """Name the record of the attempt's submission; None if a release wrote it that kept no such records."""
    if row["sources"] is not None:
        return "submission.json"
    return "logged.json" if "script" in json.loads(row["versions"] or "{}") else None


def _check_attempt_files(layout: Layout, key: str, attempt: int, directory: Path) -> Iterator[Fault]:
    end: dict[str, Any] = {}
    with suppress(NotFoundError, StoreError, EnvironmentProblem):
        end = read_json(layout.end(key, attempt))
    for name in end.get("files") or ():
        if not (directory / name).is_file():
            yield (directory / name, "it is missing, and end.json names it", AGAIN)
    for name in ("checkpoint", "weights", "artefacts", "heartbeat", "log"):
        is_sound = Path.is_file if name in ("heartbeat", "log") else Path.is_dir
        if os.path.lexists(directory / name) and not is_sound(directory / name):
            yield (directory / name, "something else stands in its place", PATH)
    yield from _check_hashed(directory)
    yield from _check_evaluations(layout, key, attempt)


def _check_hashed(directory: Path) -> Iterator[Fault]:
    for folder, remedy in (("checkpoint", CHECKPOINT), ("weights", AGAIN)):
        for path in sorted(directory.glob(f"{folder}/*.pt")):
            yield from _check_hash(path, remedy)
    for path in sorted(directory.glob("artefacts/*.npz")):
        if not _is_sound_archive(path):
            yield (path, "its arrays cannot be read: it was torn or altered", AGAIN)


def _check_evaluations(layout: Layout, key: str, attempt: int) -> Iterator[Fault]:
    unlisted: list[Unlisted] = []
    for evaluation in layout.evaluation_keys(key, attempt, unlisted):
        place = (key, attempt, evaluation)
        try:
            for path in evaluation_shards(layout, read_evaluation(layout, place)):
                verify_shard(path)
        except BadShard as error:
            yield (path, error.reason, EVALUATE)
        except (NotFoundError, StoreError, EnvironmentProblem) as error:
            yield (layout.evaluation(*place), str(error), EVALUATE)
    yield from ((path, reason, PATH) for path, reason in unlisted)


def _check_shards(layout: Layout) -> Iterator[Fault]:
    unlisted: list[Unlisted] = []
    for path in layout.shards(unlisted):
        try:
            verify_shard(path)
        except BadShard as error:
            yield (path, error.reason, AGAIN)
    yield from ((path, reason, PATH) for path, reason in unlisted)


_WRITTEN = """
    SELECT m.trial, count(*) AS rows, max(m.step) AS step
    FROM {table} m JOIN shard s ON s.number = m.shard
    JOIN (SELECT trial, attempt, unnest(shards) AS file FROM attempt WHERE status = 'ok') a
        ON a.trial = m.trial AND split_part(a.file, '.', 2) = s.blake2b
    JOIN counted r ON r.trial = a.trial AND r.attempt = a.attempt AND r.until IS NULL
    JOIN counted c ON c.trial = m.trial AND c.attempt = m.attempt AND m.step <= coalesce(c.until, m.step)
    GROUP BY ALL
"""
"""Rows that the shards of a result hold, of its attempt and those that it resumed."""


def _check_written(layout: Layout) -> Iterator[Fault]:
    """Compare the rows and last steps that records of results promise with what their shards hold."""
    held: dict[tuple[str, str], tuple[int, int]] = {}
    try:
        with Store.open(layout.root, refresh=False) as store:
            for table in TABLES:
                for trial, rows, step in store.sql(_WRITTEN.format(table=table)).rows():
                    held[trial, table] = rows, step
            ok = "SELECT trial, attempt FROM attempt JOIN counted USING (trial, attempt) WHERE status = 'ok' "
            lost = "SELECT trial FROM doubt WHERE kind = 'lost'"
            results = store.sql(f"{ok} AND until IS NULL AND trial NOT IN ({lost}) ORDER BY ALL").rows()
    except StoreError:  # `_check_database` lists it
        return
    for trial, attempt in results:
        path = layout.end(trial, attempt)
        with suppress(NotFoundError, StoreError, EnvironmentProblem):
            for table, said in (read_json(path).get("wrote") or {}).items():
                promised, actual = (said["rows"], said["step"]), held.get((trial, table), (0, 0))
                if promised != actual:
                    words = "it promises {} rows of {} up to step {}; its shards hold {} up to step {}"
                    yield (path, words.format(promised[0], table, promised[1], *actual), AGAIN)


def _check_texts(layout: Layout) -> Iterator[Fault]:
    for kind in (QUERIES, VIEWS):
        try:
            kind.every(layout)
        except AblateError as error:
            yield (kind.folder, str(error), SAVE)


def _check_json(path: Path, remedy: str) -> Iterator[Fault]:
    try:
        read_json(path)
    except NotFoundError:  # it was replaced meanwhile
        return
    except (StoreError, EnvironmentProblem) as error:
        yield (path, str(error), remedy)


def _check_hash(path: Path, remedy: str) -> Iterator[Fault]:
    named = _HASHED.fullmatch(path.name)
    if named is None:
        return
    try:
        with path.open("rb") as file:
            digest = file_digest(file, lambda: blake2b(digest_size=16))
    except FileNotFoundError:  # its owner has replaced it
        return
    except OSError as error:
        yield (path, str(environment_problem("read", path, error)), remedy)
        return
    if digest.hexdigest() != named["blake2b"]:
        yield (path, "it does not have the hash in its name: it was torn or altered", remedy)


def _is_sound_archive(path: Path) -> bool:
    try:
        with ZipFile(path) as archive:
            return archive.testzip() is None
    except (BadZipFile, OSError, EOFError, ValueError, NotImplementedError):
        return False
