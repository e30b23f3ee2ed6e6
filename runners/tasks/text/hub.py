"""Text of a Hugging Face dataset, downloaded once and kept as .jsonl in the user's cache.

Later reads need neither a network nor the package `datasets`. The cache is `$ABLATE_CACHE`, else `ablate` in
`$XDG_CACHE_HOME` or `~/.cache`.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import Field, PositiveInt, model_validator

from grid.errors import AblateError, EnvironmentProblem, SpecError
from grid.spec import Spec
from runners.tasks.optional_packages import require_package
from runners.tasks.text.corpus import Origin, content_hash
from runners.tasks.text.local_files import as_document, local_files
from store.files.atomic import environment_problem, temporary_name

TIMEOUT_S: Final = 5.0
"""Timeout of the hub's answer about a dataset."""


class HubText(Spec):
    """A column of a dataset with one document per row; empty rows are skipped."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the dataset, like "wikimedia/wikipedia", or a folder that holds one, beginning with "/" or "."."""
    config: str | None = None
    """Configuration, if there are several."""
    split: Annotated[str, Field(min_length=1)] = "train"
    """Split; training and validation text are both parts of it."""
    revision: str | None = None
    """Commit, tag or branch; None is the newest when the text is first read."""
    column: Annotated[str, Field(min_length=1)] = "text"
    """Column of the documents."""
    documents: PositiveInt | None = None
    """Number of first rows to download; None is all."""

    @model_validator(mode="after")
    def _means_one_folder(self) -> Self:
        if self.folder is not None:
            object.__setattr__(self, "name", str(self.folder))
        return self

    @property
    def cached(self) -> Path:
        """Path in the cache; a changed folder has another path."""
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file()) if self.folder else ()
        files = (f"{path.relative_to(self.name)} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in paths)
        key = content_hash(self.key, *files)
        name = "".join(letter if letter.isalnum() else "-" for letter in self.name)[-60:].strip("-")
        return _cache() / "texts" / f"{name}-{key[:16]}.jsonl"

    @property
    def folder(self) -> Path | None:
        return Path(self.name).expanduser().resolve() if self.name.startswith(("/", ".", "~")) else None

    @property
    def described(self) -> str:
        parts = [f"dataset {self.name}", self.config, f"split {self.split}"]
        return ", ".join(part for part in parts if part)


def hub_text(hub: HubText) -> Origin:
    """Return the text of `hub` from the cache, else download it; SpecError or EnvironmentProblem if that fails."""
    if not hub.cached.exists():
        _download(hub)
    return local_files(hub.cached)._replace(name=hub.described)


def _cache() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "ablate")
    return Path(os.environ.get("ABLATE_CACHE") or home).expanduser()


def _download(hub: HubText) -> None:
    datasets = require_package("datasets", by=hub.described, extra="datasets")
    target = hub.cached
    unfinished = target.with_name(temporary_name(target.name))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("w", encoding="utf-8") as file:
            for text in _rows(hub, datasets):
                file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(target)
    except (AblateError, MemoryError):
        raise
    except Exception as error:  # one of many classes of several libraries
        raise _problem(hub, error) from error
    finally:
        unfinished.unlink(missing_ok=True)


def _rows(hub: HubText, datasets: Any) -> Iterator[str]:
    for number, row in enumerate(_open(hub, datasets), start=1):
        if hub.column not in row:
            has = f"{hub.described} has no {hub.column!r}, it has {', '.join(row)}"
            raise SpecError(f"a column holds the documents; {has}; name one")
        text = row[hub.column]
        if text is not None and (not isinstance(text, str) or text.strip()):
            as_document(text, f"{hub.described}, row {number}", f"hub.column {hub.column!r} holds texts")
            yield text
        if number == hub.documents:
            return


def _open(hub: HubText, datasets: Any) -> Any:
    offline = bool(datasets.config.HF_HUB_OFFLINE)
    if hub.folder and not hub.folder.is_dir():
        raise SpecError(f"there is no folder {hub.name}; give the name of a dataset, or a folder that holds one")
    revision = hub.revision if hub.folder or offline else _commit(hub)
    streaming = bool(hub.folder) or not offline  # the hub's own cache cannot be streamed
    options = {"split": hub.split, "revision": revision, "streaming": streaming}
    return datasets.load_dataset(str(hub.folder or hub.name), hub.config, **options)


def _commit(hub: HubText) -> str:
    """Find the dataset's commit first, because `datasets` tries a dead network for 23 s."""
    library = require_package("huggingface_hub", by=hub.described, extra="datasets")
    errors = require_package("huggingface_hub.errors", by=hub.described, extra="datasets")
    try:
        return str(library.HfApi().dataset_info(hub.name, revision=hub.revision, timeout=TIMEOUT_S).sha)
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.HFValidationError) as error:
        raise SpecError(
            f"the hub has no {hub.described} of revision {hub.revision or 'newest'}; check hub.name"
        ) from error
    except Exception as error:  # one of the many classes of two HTTP libraries
        raise _problem(hub, ConnectionError()) from error


def _problem(hub: HubText, error: Exception) -> EnvironmentProblem | SpecError:
    if isinstance(error, OSError) and not isinstance(error, ConnectionError) and error.errno is not None:
        return environment_problem("write", hub.cached, error)
    package = type(error).__module__.partition(".")[0]
    if isinstance(error, ConnectionError) or package in {"aiohttp", "httpx", "httpx2", "huggingface_hub", "requests"}:
        return EnvironmentProblem(
            f"{hub.described} is not in {hub.cached.parent} and the hub cannot be reached; build this spec once where "
            f"it can be (all machines that share {_cache()} have it then), or give a local copy as `source`"
        )
    first = str(error).strip().partition("\n")[0] or type(error).__name__
    mend = "correct its files" if hub.folder else "check hub.config, hub.split and hub.column, or take another revision"
    return SpecError(f"{hub.described} cannot be read: {first}; {mend}")
