"""Tasks of lm-evaluation-harness: a trained model of text answers them, and the harness computes their metrics.

    lm_eval.<task>.<metric>       as the harness (0.4.13) has it; of a filter other than "none", .<filter> after it
    lm_eval.<task>.loss           -log p(right answer), nats; of multiple choice only
    lm_eval.<task>.truncated      the share of documents that did not fit and lost tokens at their beginning

All at the point {fewshot, context}: examples before each question, and most tokens that a model sees at a time. A group
whose tasks have different numbers of examples is at {context} alone. Items are documents, named by their number in the
task. `se_items` is the standard error over them where a metric is a mean, as the harness computes it; where it would be
bootstrapped, or is of a group of tasks, there is none.

Tasks are YAML files of the user's own, in a folder with their data, or the harness's. Nothing is downloaded: the data
of the harness's own tasks must be in the cache of Hugging Face datasets on this machine. How a model is asked says
`harness`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from math import sqrt
from pathlib import Path
from shutil import rmtree
from statistics import stdev
from tempfile import mkdtemp
from typing import Annotated, Any, Literal, Self, final
from weakref import finalize

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from grid.errors import SpecError
from grid.spec import OutsideKey
from runners.evaluations.evaluation import Evaluation, Judge
from runners.evaluations.lm_eval_adapter import SEED, HarnessRequest, check_requests, language_model, offline, quietly
from runners.evaluations.lm_eval_documents import right_answers
from runners.evaluations.lm_eval_files import counts, load_tasks
from runners.tasks.file_cache import cache_by_file
from runners.tasks.optional_packages import require_package
from runners.tasks.paths import absolute_path
from runners.tasks.task import Items, Measurements, Predict, Task
from runners.tasks.text.corpus import content_hash
from runners.tasks.text.encoder import Encodes
from variants import Backbone


class LmEval(Evaluation):
    """The metrics of tasks of lm-evaluation-harness, which `pip install "ablate[lm-eval]"` installs."""

    kind: Literal["lm_eval"] = "lm_eval"
    tasks: Annotated[tuple[str, ...], Field(min_length=1)]
    """Names of tasks, groups or tags."""
    include: Annotated[str | None, OutsideKey()] = None
    """The folder of their YAML files and data; None: the harness's own tasks. Paths of data are relative to it."""
    content_hash: Annotated[str | None, Field(pattern="^[0-9a-f]{32}$")] = None
    """Of all files of that folder; filled in when the spec is built."""
    fewshot: NonNegativeInt | None = None
    """Examples before each question; None: what the task says, or none."""
    context: PositiveInt | None = None
    """Most tokens that a model sees at a time; None: as many as its task shows it."""

    @model_validator(mode="after")
    def _is_what_lies_there(self) -> Self:
        """A spec that names its content can be read where the files are not; one that does not, looks."""
        if len(set(self.tasks)) < len(self.tasks):
            raise ValueError(f"each task is named once; got {', '.join(self.tasks)}")
        if self.include is None:
            if self.content_hash is not None:
                raise ValueError("content_hash is of the files in include; the harness's own tasks have none")
            return self
        object.__setattr__(self, "include", absolute_path("include", self.include))
        if self.content_hash is not None and not Path(self.include).exists():
            return self
        try:
            found = _hash_of(Path(self.include))
        except SpecError as error:
            raise ValueError(str(error)) from error
        if self.content_hash is None:
            self.set_normal_form(content_hash=found)
        if self.content_hash != found:
            raise ValueError(_other_content(self, found))
        return self

    @property
    def length(self) -> int:
        return self.context or 1

    def length_on(self, task: Task) -> int:
        return self.context or task.length

    def check(self, task: Task, model: Backbone) -> None:
        if not isinstance(task, Encodes):
            raise ValueError(  # noqa: TRY004  (a rule of the spec)
                f"lm_eval shows text to a model that reads text; the task is {type(task).__name__}: leave it out of "
                "evaluations"
            )
        if task.sees_ahead or not model.causal:
            raise ValueError(
                "lm_eval asks what comes next, and an encoder sees it: leave it out of evaluations, or train a causal "
                "model"
            )
        if task.unscored:
            raise ValueError(
                "lm_eval asks for every token from the first on, and the task leaves the first "
                f"{task.unscored} out, which may be seen ahead: leave it out of evaluations"
            )

    def open(self, task: Task) -> "LmEvalJudge":
        assert isinstance(task, Encodes)
        include = None if self.include is None else Path(self.include)
        if include is not None and (found := _hash_of(include)) != self.content_hash:
            raise SpecError(_other_content(self, found))
        return LmEvalJudge(self, HarnessRequest(task.encoder(), self.length_on(task)))


def _other_content(spec: LmEval, found: str) -> str:
    return (
        f"content_hash names the tasks that a model is judged by; it is {spec.content_hash} and {spec.include} has "
        f"{found}; restore its files, or leave content_hash out to take them as they are"
    )


def _hash_of(folder: Path) -> str:
    """blake2b-128 over names and contents of all files below `folder`; hidden ones and caches do not count."""
    if not folder.is_dir():
        raise SpecError(f"include is a folder of YAML files and their data; there is no folder {folder}")
    files = sorted(path for path in folder.rglob("*") if path.is_file() and counts(path.relative_to(folder)))
    if not any(path.suffix == ".yaml" for path in files):
        raise SpecError(f"include is a folder of YAML files and their data; {folder} has no .yaml file")
    return content_hash(*(part for path in files for part in (path.relative_to(folder).as_posix(), _hash_in(path))))


@cache_by_file(entries=4096)  # a grid names one folder in every trial
def _hash_in(path: Path) -> str:
    return content_hash(path.read_bytes())


@final
class LmEvalJudge(Judge):
    """Asks everything once when it is opened, of nobody, so that what cannot be asked is known before any training."""

    def __init__(self, spec: LmEval, asked: HarnessRequest) -> None:
        self._spec, self._asked = spec, asked
        scratch = mkdtemp(prefix="ablate-lm-eval-")
        finalize(self, rmtree, scratch, ignore_errors=True)
        include = None if spec.include is None else Path(spec.include)
        self._loaded = load_tasks(spec.tasks, include, Path(scratch))
        for name, task in self._loaded["tasks"].items():
            self._set_fewshot(name, task)
        with offline():
            check_requests(self._loaded["tasks"], asked)

    @property
    def record(self) -> Mapping[str, Any]:
        """The harness's version, which decides what its own tasks are, and of each task its version and documents."""
        tasks = self._loaded["tasks"].items()
        return {
            "lm_eval": version("lm_eval"),
            "include": self._spec.include,
            "content_hash": self._spec.content_hash,
            "tasks": {
                name: {
                    "version": str(task.VERSION),
                    "documents": len(task.eval_docs),
                    "fewshot": task.config.num_fewshot,
                }
                for name, task in tasks
            },
        }

    @property
    def subjects(self) -> Mapping[str, Mapping[str, float]]:
        """Tasks and groups."""
        names = (*self._loaded["tasks"], *self._loaded["groups"])
        return {f"lm_eval.{_slug(name)}": self._point(name) for name in names}

    def _point(self, name: str) -> dict[str, float]:
        """Where the rows of a task or group are taken."""
        shots = {int(self._loaded["tasks"][each].get_config("num_fewshot")) for each in self._members(name)}
        context = {"context": float(self._asked.longest)}
        return {"fewshot": float(*shots), **context} if len(shots) == 1 else context

    def _members(self, name: str) -> set[str]:
        """The tasks of a group, of groups in it as well; of a task, the task."""
        if name in self._loaded["tasks"]:
            return {name}
        return set().union(*(self._members(each) for each in self._loaded["groups"][name].child_names))

    def evaluate(self, predict: Predict) -> Iterator[Measurements | Items]:
        """Every metric of every task and group, the values of its documents, and what did not fit."""
        harness = require_package("lm_eval.evaluator", by="the evaluation lm_eval", extra="lm-eval")
        self._asked.truncated.clear()
        with offline(), quietly():
            for task in self._loaded["tasks"].values():
                task.set_fewshot_seed(seed=SEED)
            found = harness.evaluate(
                lm=language_model(predict, self._asked), task_dict=self._loaded, bootstrap_iters=0, log_samples=True
            )
        rows = [each for name in found["results"] for each in self._of_task(name, found)]
        names = [each.name for each in rows if isinstance(each, Measurements)]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SpecError(
                f"tasks and metrics of lm-eval are told apart by letters and digits; two are called {twice}"
            )
        yield from rows

    def _set_fewshot(self, name: str, task: Any) -> None:
        own, wanted = task.get_config("num_fewshot"), self._spec.fewshot
        if wanted is not None and own == 0 != wanted:
            raise SpecError(
                f"a task that has 0 examples by itself takes none; {name!r} is one, and fewshot is {wanted}"
            )
        if wanted is not None or own is None:
            task.set_config(key="num_fewshot", value=wanted or 0)

    def _of_task(self, name: str, found: Mapping[str, Any]) -> Iterator[Measurements | Items]:
        task, metrics = self._loaded["tasks"].get(name), found["results"][name]
        samples = found["samples"].get(name, [])
        count, point = int(metrics.get("sample_len") or 0), self._point(name)
        for key, value in metrics.items():
            metric, comma, chosen = key.partition(",")
            if not comma or metric.endswith("_stderr") or not _is_number(value):
                continue
            row = ".".join(map(_slug, ("lm_eval", name, metric, *([] if chosen == "none" else [chosen]))))
            single = None if task is None else _single(task, metric, chosen, samples)
            if single is None:
                yield Measurements(row, float(value), point, count, None)
            else:
                yield Measurements(row, float(value), point, len(single), _error(list(single.values())))
                yield Items(row, point, list(single), list(single.values()))
        if task is not None:
            yield from self._beside(name, task, samples)

    def _beside(self, name: str, task: Any, samples: Sequence[Mapping[str, Any]]) -> Iterator[Measurements | Items]:
        """What the harness does not say."""
        point, lost = self._point(name), self._asked.truncated.get(name, set())
        documents = sorted({int(each["doc_id"]) for each in samples})
        cut = {str(each): float(each in lost) for each in documents}
        yield from _mean(f"lm_eval.{_slug(name)}.truncated", cut, point)
        chosen = task.OUTPUT_TYPE == "multiple_choice" and task.config.doc_to_choice
        costs = _costs(task, samples) if chosen else {}
        if costs:
            yield from _mean(f"lm_eval.{_slug(name)}.loss", costs, point)


def _single(task: Any, metric: str, chosen: str, samples: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """A metric's value by document, where the metric is their mean; else None."""
    mean = require_package("lm_eval.api.metrics", by="the evaluation lm_eval", extra="lm-eval").mean
    found = {str(each["doc_id"]): each[metric] for each in samples if each["filter"] == chosen and metric in each}
    if task.aggregation().get(metric) is not mean or not found or not all(map(_is_number, found.values())):
        return None
    return {name: float(value) for name, value in found.items()}


def _costs(task: Any, samples: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Nats of the right answer by document, where exactly one is right."""
    found = {}
    for each in samples:
        right = right_answers(task, each["doc"]) if each["filter"] == "none" else None
        if right is not None and len(right) == 1:
            found[str(each["doc_id"])] = -float(each["filtered_resps"][right[0]][0])
    return found


def _mean(name: str, values: Mapping[str, float], point: Mapping[str, float]) -> Iterator[Measurements | Items]:
    numbers = list(values.values())
    yield Measurements(name, sum(numbers) / len(numbers), point, len(numbers), _error(numbers))
    yield Items(name, point, list(values), numbers)


def _error(values: Sequence[float]) -> float | None:
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) or (hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0)


def _slug(name: str) -> str:
    """In lower case, with `_` for whatever is no letter and no digit."""
    return re.sub(r"[\W_]+", "_", name.lower()).strip("_") or "_"
