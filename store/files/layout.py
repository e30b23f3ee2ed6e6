"""Where every file of a campaign lies: the wire format as paths."""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, final

from ablate.grid.errors import SpecError, StoreError
from ablate.grid.values import require_text
from ablate.store.files.atomic import environment_problem, is_temporary, make_directory, remember_root, retry_io

FILE_SCHEMA = 1  # version of the JSON files and shards; a reader refuses every other

STORE_SCHEMA = 24
"""Version of the database's tables. Readers refuse others; `ablate check --rebuild` makes this one from the files."""

_KEY = re.compile(r"[0-9a-f]{32}")
_FAN = re.compile(r"[0-9a-f]{2}")
_ARTEFACT = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_ARRAYS = re.compile(rf"(?P<name>{_ARTEFACT.pattern})-(?P<step>[0-9]{{9,}})\.npz")
_GRID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_ATTEMPT = re.compile(r"[0-9]{3,}")
_SUBMISSION = re.compile(r"[0-9]{8}T[0-9]{6}-[0-9a-f]{6}")

Unlisted = tuple[Path, str]
"""A directory that cannot be listed, and why."""


@final
class Layout:
    """The paths of a campaign, as docs/wire-format.md lists them; nothing is created or read until asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root = Path(root)
        if os.path.isdir(root):  # noqa: PTH112  (it never raises)
            remember_root(root)
        self.grids = root / "grids"
        self.submissions = root / "submissions"
        self.trials = root / "trials"
        self.spool = root / "spool"  # shards
        self.snapshots = root / "snapshots"  # trees that were submitted
        self.removals = root / "removals"  # records of removed trials
        self.trash = root / "trash"  # removed files, in a directory per removal
        self.owner = root / "owner"  # a random token; see store/files/trust.py
        self.store = root / "store"
        self.live = self.store / "live.duckdb"  # the database that the one ingester writes
        self.snapshot = self.store / "snapshot.duckdb"  # its published copy, which readers open
        self.ingest_lock = self.store / "ingest.lock"  # the flock on it makes a process the ingester
        self.stamps = self.store / "looked.json"  # stamps of trial directories at the last ingest

    def make(self) -> None:
        """Create the directory of the campaign if it is missing."""
        make_directory(self.root)
        remember_root(self.root)

    def shard(self, name: str) -> Path:
        return self.spool / name.split(".")[-2][:2] / name

    def check_store(self) -> None:
        """Raise StoreError for a store that is a symbolic link: it would be written, or read, outside the campaign."""
        for path in (self.store, self.live, self.live.with_name("live.duckdb.wal"), self.snapshot, self.ingest_lock):
            if path.is_symlink():
                raise StoreError(
                    f"{path} is a link, and a store lies inside its campaign; remove it, and the next command makes it "
                    "anew"
                )

    def exists(self) -> bool:
        """Whether `root` holds a campaign: grids, submissions, trials or shards. A store alone proves nothing."""
        return any(path.is_dir() for path in (self.grids, self.submissions, self.trials, self.spool))

    def grid_header(self, name: str) -> Path:
        return self.grids / f"{_check(_GRID, name, 'a grid is named by letters, digits, _ . and -')}.json"

    def grid_trials(self, name: str) -> Path:
        return self.grid_header(name).with_suffix(".trials.jsonl")

    def submission(self, submission: str) -> Path:
        return self.submissions / _check(_SUBMISSION, submission, "a submission is named YYYYmmddTHHMMSS-<6 hex>")

    def manifest(self, submission: str) -> Path:
        return self.submission(submission) / "manifest.jsonl"

    def manifest_index(self, submission: str) -> Path:
        return self.submission(submission) / "manifest.idx"

    def submission_record(self, submission: str) -> Path:
        return self.submission(submission) / "submission.json"

    def snapshot_tar(self, content: str) -> Path:
        """The tree with the hash `content`: code, spec file and what it imports, as they were submitted."""
        return self.snapshots / f"{_check(_KEY, content, 'a tree is named by 32 hexadecimal digits')}.tar"

    def trial(self, key: str) -> Path:
        _check(_KEY, key, "a trial's key is 32 hexadecimal digits")
        return self.trials.joinpath(key[:2], key)

    def files(self, key: str) -> Path:
        """Directory of a trial for files of its training code, which all attempts share."""
        return self.trial(key) / "files"

    def attempt(self, key: str, attempt: int) -> Path:
        return self.trial(key) / f"{attempt:03d}"

    def start(self, key: str, attempt: int) -> Path:
        return self.attempt(key, attempt) / "start.json"

    def end(self, key: str, attempt: int) -> Path:
        return self.attempt(key, attempt) / "end.json"

    def heartbeat(self, key: str, attempt: int) -> Path:
        return self.attempt(key, attempt) / "heartbeat"

    def open_inside(self, path: Path) -> BinaryIO:
        """Open a regular file of the campaign; follow no link that leads out of it, and wait for no pipe.

        Raises StoreError: the file lies outside the campaign or is no plain file; OSError: it is not there or cannot be
        read.
        """
        try:
            place = path.resolve()
        except RuntimeError as error:
            raise StoreError(f"{path} cannot be read: it is a link that leads to itself") from error
        if not place.is_relative_to(self.root.resolve()):
            raise StoreError(f"{path} is a link that leads out of the campaign; it is not read")
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise StoreError(f"{path} cannot be read: it is no plain file")
        return os.fdopen(descriptor, "rb")

    def log(self, key: str, attempt: int) -> Path:
        return self.attempt(key, attempt) / "log"

    def checkpoint(self, key: str, attempt: int) -> Path:
        return self.attempt(key, attempt) / "checkpoint"

    def weights(self, key: str, attempt: int) -> Path:
        return self.attempt(key, attempt) / "weights"

    def evaluations(self, key: str, attempt: int) -> Path:
        """Directory of evaluations made after training: records, and their shards."""
        return self.attempt(key, attempt) / "evaluations"

    def evaluation(self, key: str, attempt: int, evaluation: str) -> Path:
        checked = _check(_KEY, evaluation, "an evaluation's key is 32 hexadecimal digits")
        return self.evaluations(key, attempt) / f"{checked}.json"

    def artefact(self, key: str, attempt: int, step: int, name: str) -> Path:
        rule = "an artefact is named by lower-case words joined by -"
        checked = _check(_ARTEFACT, require_text(name, "the name of an artefact"), rule)
        return self.attempt(key, attempt) / "artefacts" / f"{checked}-{step:09d}.npz"

    def artefact_names(self, key: str, attempt: int) -> list[tuple[str, int]]:
        """Name and step of every file of arrays that an attempt left, sorted."""
        matches = (_ARRAYS.fullmatch(name) for name in _names(self.attempt(key, attempt) / "artefacts"))
        return sorted((each["name"], int(each["step"])) for each in matches if each)

    def grid_names(self) -> list[str]:
        """Names of the grids that have a header, sorted."""
        return sorted(name for name in _stems(self.grids, ".json") if _GRID.fullmatch(name))

    def removal_records(self) -> list[str]:
        """Names of the removals that have a record, sorted."""
        return sorted(_stems(self.removals, ".json"))

    def trashes(self) -> list[str]:
        """Names of the removals whose files are in the trash, sorted."""
        return sorted(name for name in _names(self.trash) if "." not in name)

    def planned_grids(self) -> list[str]:
        """Names of the grids that have a header or trials, sorted."""
        names = {*_stems(self.grids, ".json"), *_stems(self.grids, ".trials.jsonl")}
        return sorted(name for name in names if _GRID.fullmatch(name))

    def submission_ids(self) -> list[str]:
        """Submissions whose manifest is published, oldest first."""
        return [name for name in self._submissions() if self.manifest(name).is_file()]

    def submissions_without_manifest(self) -> list[str]:
        """Submissions with a record that have lost their manifest, oldest first."""
        without = [self.submission(name) for name in self._submissions() if not self.manifest(name).is_file()]
        records = ("submission.json", "logged.json")
        return [place.name for place in without if any((place / record).is_file() for record in records)]

    def _submissions(self) -> list[str]:
        return sorted(name for name in _names(self.submissions) if _SUBMISSION.fullmatch(name))

    def fans(self) -> list[str]:
        """Names of the directories that trials are fanned out into, sorted."""
        return sorted({name for name in _names(self.trials) if _FAN.fullmatch(name)})

    def trial_keys(self) -> Iterator[str]:
        """Keys of all trials that have a directory which is listed, sorted."""
        for fan in self.fans():
            yield from _keys(fan, _names(self.trials / fan, []))

    def attempts(self, key: str) -> list[int]:
        """Numbers of the trial's attempts, ascending, also without a `start.json`."""
        return _numbers(_names(self.trial(key)))

    def every_attempt(
        self, fans: Iterable[str] | None = None, unlisted: list[Unlisted] | None = None
    ) -> Iterator[tuple[str, int, str]]:
        """Yield key, attempt and directory of every attempt in `fans`, by default in all; fast for very many.

        Directories that cannot be listed are skipped and added to `unlisted`.
        """
        unlisted = [] if unlisted is None else unlisted
        trials = f"{self.root}/trials"
        for fan in self.fans() if fans is None else fans:
            for key in _keys(fan, _names(f"{trials}/{fan}", unlisted)):
                directory = f"{trials}/{fan}/{key}"
                for attempt in _numbers(_names(directory, unlisted)):
                    yield key, attempt, f"{directory}/{attempt:03d}"

    def evaluation_keys(self, key: str, attempt: int, unlisted: list[Unlisted] | None = None) -> list[str]:
        """Keys of what an attempt was judged by later, sorted; as `every_attempt` with `unlisted`."""
        _check(_KEY, key, "a trial's key is 32 hexadecimal digits")
        names = _names(f"{self.root}/trials/{key[:2]}/{key}/{attempt:03d}/evaluations", unlisted)
        stems = sorted(name.removesuffix(".json") for name in names if ".json" in name)
        return [stem for stem in stems if _KEY.fullmatch(stem)]

    def shards(self, unlisted: list[Unlisted] | None = None) -> list[Path]:
        """All published shard files, sorted by name, without unfinished ones; as `every_attempt` with `unlisted`."""
        unlisted = [] if unlisted is None else unlisted
        names = _names(self.spool)
        fans = [self.spool, *(self.spool / name for name in names if _FAN.fullmatch(name))]  # earlier releases: flat
        listed = (fan / name for fan in fans for name in (names if fan == self.spool else _names(fan, unlisted)))
        shards = (path for path in listed if path.suffix == ".parquet" and not is_temporary(path))
        return sorted(shards, key=lambda path: path.name)


def _check(pattern: re.Pattern[str], name: str, rule: str) -> str:
    if not pattern.fullmatch(name):
        raise SpecError(f"{name!r} does not fit: {rule}")
    return name


def _keys(fan: str, names: Iterable[str]) -> list[str]:
    """The trials that lie in their own directory `fan`, sorted and without the repetitions of a stale listing."""
    return sorted({name for name in names if name[:2] == fan and _KEY.fullmatch(name)})


def _stems(directory: Path, ending: str) -> set[str]:
    """Names of published files, without this ending."""
    names = (name for name in _names(directory) if name.endswith(ending) and not is_temporary(Path(name)))
    return {name.removesuffix(ending) for name in names}


def _numbers(names: Iterable[str]) -> list[int]:
    return sorted({int(name) for name in names if _ATTEMPT.fullmatch(name)})


def _names(directory: Path | str, unlisted: list[Unlisted] | None = None) -> list[str]:
    """Names in a directory, none if it is missing. Without `unlisted`, raises EnvironmentProblem if it has no list."""

    def list_names() -> list[str]:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries]

    try:
        return retry_io(list_names)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        if unlisted is not None and not (missing and not os.path.lexists(directory)):
            unlisted.append((Path(directory), f"it cannot be listed ({error.strerror})"))
        elif not missing:
            raise environment_problem("list", Path(directory), error) from error
        return []
