"""Where every file of a campaign lies: the wire format as paths."""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, final

from grid.errors import SpecError, StoreError
from store.files.atomic import environment_problem, is_temporary, retry_io

FILE_SCHEMA = 1
"""Version of the JSON files and shards; a reader refuses every other."""

STORE_SCHEMA = 15
"""Version of the database's tables. Readers refuse others; `ablate rebuild` makes this one from the files."""

_KEY = re.compile(r"[0-9a-f]{32}")
_FAN = re.compile(r"[0-9a-f]{2}")
_ARTEFACT = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_ARRAYS = re.compile(rf"(?P<name>{_ARTEFACT.pattern})-(?P<step>[0-9]{{9,}})\.npz")
_GRID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_ATTEMPT = re.compile(r"[0-9]{3,}")
_SUBMISSION = re.compile(r"[0-9]{8}T[0-9]{6}-[0-9a-f]{6}")


@final
class Layout:
    """The campaign directory `root`; nothing is created or read until asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root = Path(root)
        self.grids = root / "grids"
        """Grid headers and their trial lists."""
        self.submissions = root / "submissions"
        """Submissions, one directory per `run`."""
        self.trials = root / "trials"
        """Trials, in directories named by the first two digits of the key."""
        self.spool = root / "spool"
        """Shards, in directories named by the first two digits of their hash."""
        self.snapshots = root / "snapshots"
        """The trees that were submitted."""
        self.removals = root / "removals"
        """Records that say which trials were removed."""
        self.trash = root / "trash"
        """Removed files, in a directory per removal."""
        self.owner = root / "owner"
        """A random token, by which a user recognises a campaign of their own."""
        self.store = root / "store"
        """Directory of the database."""
        self.live = self.store / "live.duckdb"
        """The database that the one ingester writes."""
        self.snapshot = self.store / "snapshot.duckdb"
        """The published copy of the database that readers open."""
        self.ingest_lock = self.store / "ingest.lock"
        """The file whose flock makes a process the ingester."""
        self.looked = self.store / "looked.json"
        """The stamps of trial directories at the last ingest."""

    def shard(self, name: str) -> Path:
        """The shard file of this name."""
        return self.spool / name.split(".")[-2][:2] / name

    def check_store(self) -> None:
        """Raise StoreError for a store that is a symbolic link: it would be written, or read, outside the campaign."""
        for path in (self.store, self.live, self.live.with_name("live.duckdb.wal"), self.snapshot, self.ingest_lock):
            if path.is_symlink():
                raise StoreError(
                    f"a store lies inside its campaign; {path} is a symbolic link: remove the link and run "
                    "`ablate rebuild`"
                )

    def exists(self) -> bool:
        """Whether `root` holds a campaign: grids, submissions, trials or shards. A store alone proves nothing."""
        return any(path.is_dir() for path in (self.grids, self.submissions, self.trials, self.spool))

    def grid_header(self, name: str) -> Path:
        """`grids/<name>.json`."""
        return self.grids / f"{_check(_GRID, name, 'a grid is named by letters, digits, _ . and -')}.json"

    def grid_trials(self, name: str) -> Path:
        """`grids/<name>.trials.jsonl`: the grid's trials in execution order."""
        return self.grid_header(name).with_suffix(".trials.jsonl")

    def submission(self, submission: str) -> Path:
        """Directory of one submission."""
        return self.submissions / _check(_SUBMISSION, submission, "a submission is named YYYYmmddTHHMMSS-<6 hex>")

    def manifest(self, submission: str) -> Path:
        """`manifest.jsonl`: the trials of the submission."""
        return self.submission(submission) / "manifest.jsonl"

    def manifest_index(self, submission: str) -> Path:
        """`manifest.idx`: little-endian uint64 byte offsets of the manifest's lines."""
        return self.submission(submission) / "manifest.idx"

    def submission_record(self, submission: str) -> Path:
        """`submission.json`: what was asked for, and which jobs it became."""
        return self.submission(submission) / "submission.json"

    def snapshot_tar(self, content: str) -> Path:
        """`snapshots/<blake2b-128 of the file>.tar`: code, spec file and what it imports, as they were submitted."""
        return self.snapshots / f"{_check(_KEY, content, 'a tree is named by 32 hexadecimal digits')}.tar"

    def trial(self, key: str) -> Path:
        """Directory of one trial's attempts."""
        _check(_KEY, key, "a trial's key is 32 hexadecimal digits")
        return self.trials.joinpath(key[:2], key)

    def attempt(self, key: str, attempt: int) -> Path:
        """Directory of one attempt, numbered from 1; the process that creates it owns it."""
        return self.trial(key) / f"{attempt:03d}"

    def start(self, key: str, attempt: int) -> Path:
        """`start.json` of an attempt."""
        return self.attempt(key, attempt) / "start.json"

    def end(self, key: str, attempt: int) -> Path:
        """`end.json` of an attempt; its presence means the attempt has ended."""
        return self.attempt(key, attempt) / "end.json"

    def heartbeat(self, key: str, attempt: int) -> Path:
        """The file that an attempt rewrites with its progress every few seconds."""
        return self.attempt(key, attempt) / "heartbeat"

    def open_inside(self, path: Path) -> BinaryIO:
        """Open a regular file of the campaign; follow no link that leads out of it, and wait for no pipe.

        Raises StoreError: the file lies outside the campaign or is no plain file; OSError: it is not there or cannot be
        read.
        """
        place = path.resolve()
        if not place.is_relative_to(self.root.resolve()):
            raise StoreError(f"{path} is a link that leads out of the campaign; it is not read")
        file = os.fdopen(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise StoreError(f"{path} cannot be read: it is no plain file")
        return file

    def log(self, key: str, attempt: int) -> Path:
        """Free text for people; nobody parses it."""
        return self.attempt(key, attempt) / "log"

    def checkpoint(self, key: str, attempt: int) -> Path:
        """Directory of an attempt's checkpoints."""
        return self.attempt(key, attempt) / "checkpoint"

    def weights(self, key: str, attempt: int) -> Path:
        """Directory of the trained weights, where a trial keeps them: a file like a checkpoint."""
        return self.attempt(key, attempt) / "weights"

    def evaluations(self, key: str, attempt: int) -> Path:
        """Directory of evaluations made after training: records, and the shards that they name."""
        return self.attempt(key, attempt) / "evaluations"

    def evaluation(self, key: str, attempt: int, evaluation: str) -> Path:
        """The record of one later evaluation, named by the key of its spec."""
        checked = _check(_KEY, evaluation, "an evaluation's key is 32 hexadecimal digits")
        return self.evaluations(key, attempt) / f"{checked}.json"

    def artefact(self, key: str, attempt: int, step: int, name: str) -> Path:
        """Arrays that a probe found at a step, `artefacts/<name>-<step>.npz`."""
        checked = _check(_ARTEFACT, name, "an artefact is named by lower-case words joined by -")
        return self.attempt(key, attempt) / "artefacts" / f"{checked}-{step:09d}.npz"

    def artefact_names(self, key: str, attempt: int) -> list[tuple[str, int]]:
        """Name and step of every file of arrays that an attempt left, sorted."""
        found = (_ARRAYS.fullmatch(name) for name in _names(self.attempt(key, attempt) / "artefacts"))
        return sorted((each["name"], int(each["step"])) for each in found if each)

    def grid_names(self) -> list[str]:
        """Names of the grids that have a header, sorted."""
        found = (Path(name) for name in _names(self.grids) if name.endswith(".json"))
        return sorted(path.stem for path in found if not is_temporary(path) and _GRID.fullmatch(path.stem))

    def removal_records(self) -> list[str]:
        """Names of the removals that have a record, sorted."""
        found = (Path(name) for name in _names(self.removals) if name.endswith(".json"))
        return sorted(path.stem for path in found if not is_temporary(path))

    def trashes(self) -> list[str]:
        """Names of the removals whose files are in the trash, sorted."""
        return sorted(name for name in _names(self.trash) if "." not in name)

    def planned_grids(self) -> list[str]:
        """Names of the grids that have a header or trials, sorted."""
        found = (name.removesuffix(".trials.jsonl") for name in _names(self.grids) if name.endswith(".trials.jsonl"))
        return sorted({*self.grid_names(), *(name for name in found if _GRID.fullmatch(name))})

    def submission_ids(self) -> list[str]:
        """Submissions whose manifest is published, oldest first."""
        found = sorted(name for name in _names(self.submissions) if _SUBMISSION.fullmatch(name))
        return [name for name in found if self.manifest(name).is_file()]

    def submissions_without_manifest(self) -> list[str]:
        """Submissions with a record that have lost their manifest, oldest first."""
        found = sorted(name for name in _names(self.submissions) if _SUBMISSION.fullmatch(name))
        records = ("submission.json", "logged.json")
        return [
            name
            for name in found
            if not self.manifest(name).is_file() and any((self.submission(name) / each).is_file() for each in records)
        ]

    def fans(self) -> list[str]:
        """Names of the directories that trials are fanned out into, sorted."""
        return sorted({name for name in _names(self.trials) if _FAN.fullmatch(name)})

    def trial_keys(self) -> Iterator[str]:
        """Keys of all trials that have a directory, sorted."""
        for fan in self.fans():
            yield from _keys(fan, _names(self.trials / fan))

    def attempts(self, key: str) -> list[int]:
        """Numbers of the trial's attempts, ascending, also without a `start.json`."""
        return _numbers(_names(self.trial(key)))

    def every_attempt(self, fans: Iterable[str] | None = None) -> Iterator[tuple[str, int, str]]:
        """Yield key, attempt and directory of every attempt in `fans`, by default in all; fast for very many."""
        trials = f"{self.root}/trials"
        for fan in self.fans() if fans is None else fans:
            for key in _keys(fan, _names(f"{trials}/{fan}")):
                directory = f"{trials}/{fan}/{key}"
                for attempt in _numbers(_names(directory)):
                    yield key, attempt, f"{directory}/{attempt:03d}"

    def evaluation_keys(self, key: str, attempt: int) -> list[str]:
        """Keys of what an attempt was judged by later, sorted."""
        _check(_KEY, key, "a trial's key is 32 hexadecimal digits")
        names = _names(f"{self.root}/trials/{key[:2]}/{key}/{attempt:03d}/evaluations")
        stems = sorted(name.removesuffix(".json") for name in names if ".json" in name)
        return [stem for stem in stems if _KEY.fullmatch(stem)]

    def shards(self) -> list[Path]:
        """All published shard files, sorted by name; unfinished files are left out."""
        names = _names(self.spool)
        fans = [self.spool, *(self.spool / name for name in names if _FAN.fullmatch(name))]  # earlier releases: flat
        listed = (fan / name for fan in fans for name in (names if fan == self.spool else _names(fan)))
        shards = (path for path in listed if path.suffix == ".parquet" and not is_temporary(path))
        return sorted(shards, key=lambda path: path.name)


def _check(pattern: re.Pattern[str], name: str, rule: str) -> str:
    if not pattern.fullmatch(name):
        raise SpecError(f"{rule}; got {name!r}")
    return name


def _keys(fan: str, names: Iterable[str]) -> list[str]:
    """The trials that lie in their own directory `fan`, sorted and without the repetitions of a stale listing."""
    return sorted({name for name in names if name[:2] == fan and _KEY.fullmatch(name)})


def _numbers(names: Iterable[str]) -> list[int]:
    return sorted({int(name) for name in names if _ATTEMPT.fullmatch(name)})


def _names(directory: Path | str) -> list[str]:
    def list_names() -> list[str]:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries]

    try:
        return retry_io(list_names)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise environment_problem("list", Path(directory), error) from error
