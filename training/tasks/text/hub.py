"""Text of a Hugging Face dataset, downloaded once and kept as .jsonl in the user's cache.

Later reads need neither a network nor the package `datasets`.
"""

import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, PositiveInt, model_validator

from ablate.grid.errors import AblateError, EnvironmentProblem, SpecError
from ablate.grid.optional_packages import require_package
from ablate.grid.spec import Spec
from ablate.store.files.atomic import environment_problem, temporary_name
from ablate.training.tasks.text.corpus import Origin, content_hash
from ablate.training.tasks.text.local_files import as_document, local_files
from ablate.training.tasks.user_files import cache_folder


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
        return cache_folder() / "texts" / f"{name}-{key[:16]}.jsonl"

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
    for number, row in enumerate(islice(_open(hub, datasets), hub.documents), start=1):
        if hub.column not in row:
            has = ", ".join(row)
            raise SpecError(f"{hub.described} has no column {hub.column!r} of documents; it has {has}, name one")
        text = row[hub.column]
        if text is not None and (not isinstance(text, str) or text.strip()):
            as_document(text, f"{hub.described}, row {number}", f"hub.column {hub.column!r} holds texts")
            yield text


def _open(hub: HubText, datasets: Any) -> Any:
    if hub.folder and not hub.folder.is_dir():
        raise SpecError(f"there is no folder {hub.name}; give the name of a dataset, or a folder that holds one")
    if not hub.folder and Path(hub.name).exists():  # which `datasets` would read as if it were the hub's
        raise SpecError(
            f"hub.name {hub.name!r} is a dataset of the hub, and a file here, too; write ./{hub.name} for the latter"
        )
    streaming = bool(hub.folder) or not datasets.config.HF_HUB_OFFLINE  # the hub's own cache cannot be streamed
    options = {"split": hub.split, "revision": hub.revision, "streaming": streaming}
    return datasets.load_dataset(hub.name, hub.config, **options)


def _problem(hub: HubText, error: Exception) -> EnvironmentProblem | SpecError:
    if isinstance(error, OSError) and not isinstance(error, ConnectionError) and error.errno is not None:
        return environment_problem("write", hub.cached, error)
    package = type(error).__module__.partition(".")[0]
    lost = package in {"aiohttp", "httpx", "httpx2", "huggingface_hub", "requests"} and not isinstance(
        error, ValueError
    )
    if isinstance(error, ConnectionError) or lost:
        return EnvironmentProblem(
            f"{hub.described} is not in {hub.cached.parent} and the hub cannot be reached; build this spec once where "
            f"it can be (all machines that share {cache_folder()} have it then), or give a local copy as `source`"
        )
    first = str(error).strip().partition("\n")[0] or type(error).__name__
    mend = "correct its files" if hub.folder else "check name, config, split, column and revision of hub"
    return SpecError(f"{hub.described} cannot be read: {first}; {mend}")
