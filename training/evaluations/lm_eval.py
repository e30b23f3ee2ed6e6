"""Tasks of lm-evaluation-harness: a trained model of text answers them, and the harness computes their metrics.

    lm_eval.<task>.<metric>       as in the harness (0.4.13); a filter other than "none" adds .<filter>
    lm_eval.<task>.loss           -log p(right answer), nats; for multiple choice only
    lm_eval.<task>.acc_full       the same choices by the mean of log p over all tokens, those of the question as well
    lm_eval.<task>.truncated      the share of documents that were too long and lost tokens at their beginning

All rows are at the point {fewshot, context}: examples before each question, and most tokens that a model sees at a
time. A group whose tasks have different numbers of examples has no fewshot. With `scaling` there is its factor, too.
Items are documents, named by their number in the task. If a metric is a mean, `se_items` is the standard error over
them, as the harness computes it. Groups of tasks, and metrics that need a bootstrap, have none.

`acc_full` is the rule of the Integral Transformer (paper 002): the answer with the lowest perplexity of the whole
sequence. A tie is wrong, where the harness takes the first of equal answers. A group counts its documents alike.

Rolling perplexities count the tokens of a text. Whether they count the BOS before it, as the harness does with Llama's
tokenizer and not with GPT-2's, is the field `score_bos`, which the record of the evaluation repeats.

Tasks are YAML files of the user, in a folder with their data, or the harness's. Nothing is downloaded: the data of the
harness's own tasks must be in the cache of Hugging Face datasets on this machine. `lm_eval_adapter` asks the model.
"""

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Annotated, Any, ClassVar, Literal, Self, final
from weakref import finalize

import torch
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from ablate.grid.errors import SpecError
from ablate.grid.spec import Added, OutsideKey
from ablate.training.evaluations.evaluation import Evaluation, Evaluator, slug
from ablate.training.evaluations.length_extrapolation import Stretch, stretch_positions
from ablate.training.evaluations.lm_eval_adapter import (
    SEED,
    RequestConverter,
    check_requests,
    harness,
    has_choices,
    language_model,
    offline,
    quiet,
    right_answers,
)
from ablate.training.evaluations.lm_eval_files import is_hashed, load_tasks
from ablate.training.tasks.task import Items, Measurements, Predict, Task, over_items
from ablate.training.tasks.text.corpus import content_hash
from ablate.training.tasks.text.encoder import Encodes, require_spelled
from ablate.training.tasks.user_files import absolute_path, cache_by_file, require_hash
from ablate.variants import Positions
from ablate.variants.model.foreign import AnyBackbone


class LmEval(Evaluation):
    """The metrics of tasks of lm-evaluation-harness, which needs `pip install "ablate[lm-eval]"`."""

    needs: ClassVar[tuple[type, str]] = (Encodes, "a task of text")
    causal_only: ClassVar[bool] = True
    kind: Literal["lm_eval"] = "lm_eval"
    tasks: Annotated[tuple[str, ...], Field(min_length=1)]
    """Names of tasks, groups or tags."""
    include: Annotated[str | None, OutsideKey()] = None
    """The folder of their YAML files and data; None: the harness's own tasks. Paths of data are relative to it."""
    content_hash: Annotated[str | None, Field(pattern="^[0-9a-f]{32}$")] = None
    """Hash of all files of that folder; filled in when the spec is built."""
    fewshot: NonNegativeInt | None = None
    """Examples before each question; None: the task's own number, or none."""
    context: PositiveInt | None = None
    """Most tokens that a model sees at a time; None: the length of its task."""
    score_bos: Annotated[bool, Added()] = False
    """Rolling perplexities count the token that begins a text, as the harness does for tokenizers that add a BOS."""
    scaling: Annotated[Stretch | None, Added()] = None
    """Stretches rotary positions; None leaves positions as in training."""

    @model_validator(mode="after")
    def _matches_the_files(self) -> Self:
        """Read the files, unless the spec has their hash and they are missing."""
        if len(set(self.tasks)) < len(self.tasks):
            raise ValueError(f"tasks={', '.join(self.tasks)} repeat a name; leave one out")
        if self.include is None:
            if self.content_hash is not None:
                raise ValueError(
                    "content_hash has no effect without include: the harness's own tasks have none; leave it out"
                )
            return self
        object.__setattr__(self, "include", absolute_path("include", self.include))
        if self.content_hash is None or Path(self.include).exists():
            try:
                self.set_normal_form(content_hash=self.content_hash or _hash_of(Path(self.include)))
                require_hash(self.content_hash, _hash_of(Path(self.include)), self.include)
            except SpecError as error:
                raise ValueError(str(error)) from error
        return self

    @property
    def length(self) -> int:
        return self.context or 1

    def length_on(self, task: Task) -> int:
        return self.context or task.length

    def check(self, task: Task, model: AnyBackbone) -> None:
        super().check(task, model)
        require_spelled(task, self.label)
        if task.unscored:
            raise ValueError(
                f"the task leaves the first {task.unscored} tokens out of its loss, and lm_eval scores every one; "
                "leave it out of evaluations"
            )
        stretch_positions(model, self.scaling)

    def positions(self, model: AnyBackbone) -> Positions:
        return stretch_positions(model, self.scaling)

    def open(self, task: Task) -> "LmEvalEvaluator":
        assert isinstance(task, Encodes)
        if self.include is not None:
            require_hash(self.content_hash, _hash_of(Path(self.include)), self.include)
        return LmEvalEvaluator(self, RequestConverter(task.encoder(), self.length_on(task), score_bos=self.score_bos))


def _hash_of(folder: Path) -> str:
    """Compute blake2b-128 over names and contents of all files below `folder`, without hidden files and caches."""
    if not folder.is_dir():
        raise SpecError(f"there is no folder {folder}; include needs a folder of YAML files and their data")
    files = sorted(path for path in folder.rglob("*") if path.is_file() and is_hashed(path.relative_to(folder)))
    if not any(path.suffix == ".yaml" for path in files):
        raise SpecError(f"{folder} has no .yaml file; include needs a folder of YAML files and their data")
    return content_hash(*(part for path in files for part in (path.relative_to(folder).as_posix(), _file_hash(path))))


@cache_by_file(entries=4096)  # all trials of a grid have the same folder
def _file_hash(path: Path) -> str:
    return content_hash(path.read_bytes())


@final
class LmEvalEvaluator(Evaluator):
    """Builds all requests when it is opened, so problems are known before any training."""

    def __init__(self, spec: LmEval, converter: RequestConverter) -> None:
        self._spec, self._converter = spec, converter
        scratch = mkdtemp(prefix="ablate-lm-eval-")
        finalize(self, rmtree, scratch, ignore_errors=True)
        include = None if spec.include is None else Path(spec.include)
        self._loaded = load_tasks(spec.tasks, include, Path(scratch))
        for name, task in self._loaded["tasks"].items():
            self._set_fewshot(name, task)
        with offline():
            check_requests(self._loaded["tasks"], converter)

    @property
    def record(self) -> Mapping[str, Any]:
        """The versions of the harness and of each task, with numbers of documents, and how rolling tasks begin."""
        tasks = {
            name: {"version": str(each.VERSION), "documents": len(each.eval_docs), "fewshot": each.config.num_fewshot}
            for name, each in self._loaded["tasks"].items()
        }
        spec = {name: getattr(self._spec, name) for name in ("include", "content_hash", "score_bos")}
        return {"lm_eval": version("lm_eval"), **spec, "tasks": tasks}

    @property
    def subjects(self) -> Mapping[str, Mapping[str, float]]:
        names = (*self._loaded["tasks"], *self._loaded["groups"])
        return {f"lm_eval.{_slug(name)}": self._point(name) for name in names}

    def _point(self, name: str) -> dict[str, float]:
        shots = {int(self._loaded["tasks"][each].get_config("num_fewshot")) for each in self._members(name)}
        scaling = self._spec.scaling
        rest = {"context": float(self._converter.longest), **({} if scaling is None else {"factor": scaling.factor})}
        return {"fewshot": float(*shots), **rest} if len(shots) == 1 else rest

    def _members(self, name: str) -> set[str]:
        """Return the tasks of a group, also of groups in it, or the task itself."""
        if name in self._loaded["tasks"]:
            return {name}
        return set().union(*(self._members(each) for each in self._loaded["groups"][name].child_names))

    def evaluate(self, predict: Predict) -> Iterator[Measurements | Items]:
        """Yield every metric of every task and group, the values of documents, and the share of cut documents."""
        evaluator = harness("lm_eval.evaluator")
        self._converter.truncated.clear()
        self._converter.means.clear()
        with offline(), quiet():
            for task in self._loaded["tasks"].values():
                task.set_fewshot_seed(seed=SEED)
            results = evaluator.evaluate(
                lm=language_model(predict, self._converter), task_dict=self._loaded, bootstrap_iters=0, log_samples=True
            )
        rows = [each for name in results["results"] for each in self._task_rows(name, results)]
        names = [each.name for each in rows if isinstance(each, Measurements)]
        for twice in {name for name in names if names.count(name) > 1}:
            raise SpecError(f"two lm-eval tasks or metrics are called {twice}; name them by other letters")
        yield from rows

    def _set_fewshot(self, name: str, task: Any) -> None:
        own, wanted = task.get_config("num_fewshot"), self._spec.fewshot
        if wanted is not None and own == 0 != wanted:
            raise SpecError(
                f"the task {name!r} sets num_fewshot to 0 and takes no examples, but fewshot={wanted}; leave one out"
            )
        if wanted is not None or own is None:
            task.set_config(key="num_fewshot", value=wanted or 0)

    def _task_rows(self, name: str, results: Mapping[str, Any]) -> Iterator[Measurements | Items]:
        task, metrics = self._loaded["tasks"].get(name), results["results"][name]
        samples = results["samples"].get(name, [])
        count, point = int(metrics.get("sample_len") or 0), self._point(name)
        for key, value in metrics.items():
            metric, comma, chosen = key.partition(",")
            if not comma or metric.endswith("_stderr") or not _is_number(value):
                continue
            row = ".".join(map(_slug, ("lm_eval", name, metric, *([] if chosen == "none" else [chosen]))))
            single = None if task is None else _document_values(task, metric, chosen, samples)
            if single is None:
                yield Measurements(row, float(value), point, count, None)
            else:
                mean, items = _mean(row, single, point)
                yield mean._replace(value=float(value))
                yield items
        full = {key: wins for each in self._members(name) for key, wins in self._full(each, results).items()}
        if task is None and full:
            yield Measurements(f"lm_eval.{_slug(name)}.acc_full", sum(full.values()) / len(full), point, count, None)
        if task is None:
            return
        lost = self._converter.truncated.get(name, set())
        cut = {str(each): float(each in lost) for each in sorted({int(each["doc_id"]) for each in samples})}
        yield from _mean(f"lm_eval.{_slug(name)}.truncated", cut, point)
        losses = _answer_losses(task, samples) if has_choices(task) else {}
        if losses:
            yield from _mean(f"lm_eval.{_slug(name)}.loss", losses, point)
        if full:
            single = {number: wins for (_, number), wins in full.items()}
            yield from _mean(f"lm_eval.{_slug(name)}.acc_full", single, point)

    def _full(self, name: str, results: Mapping[str, Any]) -> dict[tuple[str, str], float]:
        """Return by task and document whether the likeliest whole sequence is that of a right answer."""
        task, values = self._loaded["tasks"][name], {}
        for each in results["samples"].get(name, []) if has_choices(task) else []:
            right, means = right_answers(task, each["doc"]), self._converter.means[name, int(each["doc_id"])]
            if right is not None:
                others = [means[at] for at in range(len(task.doc_to_choice(each["doc"]))) if at not in right]
                wins = any(all(means[at] > other for other in others) for at in right)  # NaN never wins
                values[name, str(each["doc_id"])] = float(wins)
        return values


def _document_values(
    task: Any, metric: str, chosen: str, samples: Sequence[Mapping[str, Any]]
) -> dict[str, float] | None:
    """Return a metric's values by document if the metric is their mean, else None."""
    mean = harness("lm_eval.api.metrics").mean
    values = {str(each["doc_id"]): each[metric] for each in samples if each["filter"] == chosen and metric in each}
    if task.aggregation().get(metric) is not mean or not values or not all(map(_is_number, values.values())):
        return None
    return {name: float(value) for name, value in values.items()}


def _answer_losses(task: Any, samples: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the loss of the right answer by document, in nats, if exactly one is right."""
    losses = {}
    for each in samples:
        right = right_answers(task, each["doc"]) if each["filter"] == "none" else None
        if right is not None and len(right) == 1:
            losses[str(each["doc_id"])] = -float(each["filtered_resps"][right[0]][0])
    return losses


def _mean(name: str, values: Mapping[str, float], point: Mapping[str, float]) -> tuple[Measurements, Items]:
    numbers = list(values.values())
    items = Items(name, point, list(values), numbers)
    return over_items(name, torch.tensor(numbers, dtype=torch.float64), point), items


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) or (hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0)


def _slug(name: str) -> str:
    return slug(name) or "_"
