"""A trained model behind the interface of lm-evaluation-harness, as its model class for Hugging Face (0.4.13).

Tokens at the border of context and continuation are cut as in `likelihood.pair`. Texts that are too long lose tokens at
their beginning. Generation is greedy. A context begins with the token that ends documents. Rolling likelihoods score
that token only with `score_bos`, as the harness's class does with tokenizers that add a BOS.
"""

import io
import os
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from functools import partial, reduce
from typing import Any, NamedTuple, SupportsIndex, final

import numpy as np
import torch
from torch.nn import functional as F

from ablate.grid.errors import SpecError
from ablate.grid.optional_packages import require_package
from ablate.training.evaluations.likelihood import encoding, generate, groups_by_length, pair
from ablate.training.tasks.task import Predict, once
from ablate.training.tasks.text.encoder import Encoder

SEED = 1234
"""The harness's seed, for few-shot examples and other draws of its tasks."""

_MOST_NEW = 256
"""Default of generated tokens, as in the harness."""
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Fields of a task with the number of generated tokens; the first counts, as in the harness."""


class Scored(NamedTuple):
    """The answer of a model to a `HarnessQuestion`."""

    log_likelihood: float
    """log p of the scored tokens, nats."""
    greedy: bool
    """True if each of them is the likeliest at its place."""
    mean: float
    """Mean of log p over all tokens that the model predicts."""


class HarnessQuestion(NamedTuple):
    """Tokens; the last `scored` are scored."""

    tokens: Sequence[int]
    scored: int


@final
class RequestConverter:
    """Converts requests of the harness to tokens; remembers which documents were too long, and means of log p."""

    def __init__(self, encoder: Encoder, longest: int, *, score_bos: bool = False) -> None:
        self.encoder, self.longest, self._score_bos = encoder, longest, score_bos
        self.truncated: dict[str, set[int]] = defaultdict(set)
        self.means: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
        """`Scored.mean` by the number of the choice, by task and document."""

    def continuation(self, request: Any) -> HarnessQuestion:
        """Return the tokens of (context, continuation), cut at the beginning; SpecError if it has none or too many."""
        context, continuation = request.args
        with encoding(_name(request)):
            before, after = pair(self.encoder, context, continuation)
        if not after:
            raise SpecError(f"{_name(request)} has a continuation without tokens, {continuation!r}")
        if len(after) > self.longest:
            raise SpecError(f"{_name(request)} has {len(after)} tokens; the model sees {self.longest}; raise context")
        tokens = [self.encoder.end, *before, *after]
        if len(tokens) > self.longest + 1:
            self.truncated[request.task_name].add(request.doc_id)
        return HarnessQuestion(tokens[-(self.longest + 1) :], len(after))

    def windows(self, request: Any) -> list[HarnessQuestion]:
        """Cut a document into windows that score each token once, with as much context as fits."""
        from lm_eval.utils import get_rolling_token_windows

        with encoding(_name(request)):
            tokens = [*[self.encoder.end] * self._score_bos, *self.encoder.encode(request.args[0]).ids]
        rolling = get_rolling_token_windows(
            token_list=tokens, prefix_token=self.encoder.end, max_seq_len=self.longest, context_len=1
        )
        return [HarnessQuestion([*inputs, wanted[-1]], len(wanted)) for inputs, wanted in rolling]

    def prompt(self, request: Any, room: int) -> list[int]:
        """Return the tokens of a prompt, cut at the beginning so that `room` tokens are left for the answer."""
        with encoding(_name(request)):
            tokens = [self.encoder.end, *self.encoder.encode(request.args[0]).ids]
        if room >= self.longest:
            raise SpecError(f"{_name(request)} generates {room} tokens; the model sees {self.longest}; raise context")
        if len(tokens) > self.longest - room:
            self.truncated[request.task_name].add(request.doc_id)
        return tokens[-(self.longest - room) :]


def harness(module: str) -> Any:
    """Import a module of the harness or of a package that it needs; EnvironmentProblem if it is not installed."""
    return require_package(module, by="the evaluation lm_eval", extra="lm-eval")


def _name(request: Any) -> str:
    return f"document {request.doc_id} of the lm-eval task {request.task_name!r}"


def score_questions(predict: Predict, sequences: Sequence[HarnessQuestion], vocabulary: int) -> list[Scored]:
    """Score each sequence, those of one length together."""
    answers = [Scored(0.0, greedy=False, mean=0.0)] * len(sequences)
    for members in groups_by_length([len(each.tokens) - 1 for each in sequences], vocabulary):
        scores = once(predict, partial(_score_group, predict, [sequences[at] for at in members]))
        for at, scored in zip(members, scores, strict=True):
            answers[at] = Scored(*scored)
    return answers


def _score_group(predict: Predict, group: Sequence[HarnessQuestion]) -> list[tuple[float, bool, float]]:
    tokens = torch.tensor([list(each.tokens) for each in group])
    outputs = predict(tokens[:, :-1])
    logits = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    wanted = tokens[:, 1:].to(logits.device)
    costs = F.log_softmax(logits, dim=-1).gather(2, wanted[..., None])[..., 0].to("cpu", torch.float64)
    likeliest = (logits.argmax(-1) == wanted).cpu()
    last = [slice(-each.scored, None) for each in group]
    return [
        (float(costs[row, part].sum()), bool(likeliest[row, part].all()), float(costs[row].mean()))
        for row, part in enumerate(last)
    ]


def language_model(predict: Predict, converter: RequestConverter) -> Any:
    """Make an `lm_eval.api.model.LM` that answers with `predict`."""
    api = harness("lm_eval.api.model")
    vocabulary = converter.encoder.vocabulary

    class Trained(api.LM):  # type: ignore[misc, name-defined]
        def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
            answers = score_questions(predict, [converter.continuation(each) for each in requests], vocabulary)
            for each, answer in zip(requests, answers, strict=True):
                converter.means[each.task_name, each.doc_id][each.idx] = answer.mean
            return [(answer.log_likelihood, answer.greedy) for answer in answers]

        def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
            windows = [converter.windows(each) for each in requests]
            answers = iter(score_questions(predict, [window for each in windows for window in each], vocabulary))
            return [sum(next(answers).log_likelihood for _ in each) for each in windows]

        def generate_until(self, requests: list[Any]) -> list[str]:
            groups: dict[tuple[int, tuple[str, ...]], list[int]] = defaultdict(list)
            for at, each in enumerate(requests):
                groups[generation_limits(each)].append(at)
            texts = [""] * len(requests)
            for (room, until), members in groups.items():
                prompts = [converter.prompt(requests[at], room) for at in members]

                def is_over(text: str, stops: Sequence[str] = until) -> bool:
                    return any(stop in text for stop in stops)

                written = generate(predict, prompts, room, converter.encoder, is_over)
                for at, text in zip(members, written, strict=True):
                    texts[at] = reduce(lambda left, stop: left.split(stop)[0] if stop else left, until, text)
            return texts

    return Trained()


def generation_limits(request: Any) -> tuple[int, tuple[str, ...]]:
    """Return the most tokens of an answer and the texts that end it; SpecError if it needs sampling or no tokens."""
    wanted = dict(request.args[1])
    greedy = wanted.get("do_sample") is False  # the harness then ignores a temperature
    if not greedy and (wanted.get("do_sample") or float(wanted.get("temperature") or 0) > 0):
        raise SpecError(f"{_name(request)} asks for samples, and generation is greedy; set do_sample to false in it")
    lengths = [wanted[name] for name in _LENGTHS if wanted.get(name) is not None]
    room = int(lengths[0]) if lengths else _MOST_NEW
    if room < 1:
        raise SpecError(f"{_name(request)} generates {room} tokens; raise max_gen_toks")
    until = wanted.get("until") or ()
    return room, (until,) if isinstance(until, str) else tuple(until)


def has_choices(task: Any) -> bool:
    """Return True if a task lists its choices, so that a request belongs to one of them."""
    return bool(task.OUTPUT_TYPE == "multiple_choice" and task.config.doc_to_choice)


def right_answers(task: Any, document: Any) -> list[int] | None:
    """Return the numbers of the right choices, as the harness finds them, or None if an answer is no choice."""
    answer = task.doc_to_text(document) if task.multiple_input else task.doc_to_target(document)
    choices = task.doc_to_choice(document)
    if isinstance(answer, list) != bool(task.multiple_target):  # the first document sets the kind for all
        return None
    if isinstance(answer, str):
        return [choices.index(answer)] if answer in choices else None
    numbers = answer if isinstance(answer, list) else [answer]
    if not all(isinstance(each, SupportsIndex) and 0 <= each.__index__() < len(choices) for each in numbers):
        return None
    return [each.__index__() for each in numbers] or None


def require_answers(task: Any) -> None:
    """Raise SpecError if the right answer of a multiple choice is none of the choices."""
    if not has_choices(task) or task.config.process_results:
        return
    field = "doc_to_text" if task.multiple_input else "doc_to_target"
    for number, document in enumerate(task.eval_docs):
        if right_answers(task, document) is None:
            raise SpecError(
                "the right answer is the number from 0 or the text of a choice, or in every document a list of "
                f"numbers; document {number} of the lm-eval task {task.config.task!r} has "
                f"{repr(getattr(task, field)(document))[:80]} and the choices "
                f"{repr(task.doc_to_choice(document))[:120]}; repair it, or {field}"
            )


def error_words(error: BaseException) -> str:
    """Write the root cause of an error of another library on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def check_requests(tasks: Mapping[str, Any], converter: RequestConverter) -> None:
    """Raise SpecError, before any training, for requests that a model cannot answer."""
    with quiet():
        for task in tasks.values():
            task.set_fewshot_seed(seed=SEED)
            try:
                task.build_all_requests()
            except Exception as error:
                raise SpecError(
                    f"a document of the lm-eval task {task.config.task!r} cannot be rendered ({error_words(error)})"
                ) from error
            require_answers(task)
            for request in task.instances:
                if request.request_type == "loglikelihood":
                    converter.continuation(request)
                elif request.request_type == "loglikelihood_rolling":
                    converter.windows(request)
                else:
                    converter.prompt(request, generation_limits(request)[0])
    converter.truncated.clear()


@contextmanager
def quiet() -> Iterator[None]:
    """Hide the harness's progress bars and remarks, and fix its random numbers."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(0)
    np.random.seed(SEED)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


@contextmanager
def offline() -> Iterator[None]:
    """Keep Hugging Face packages off the network, also if they were imported before."""
    hub = harness("huggingface_hub.constants")
    data = harness("datasets").config  # before it is set offline
    with ExitStack() as stack:
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
            before = os.environ.get(name)
            stack.callback(os.environ.update, {} if before is None else {name: before})
            stack.callback(os.environ.pop, name)
            os.environ[name] = "1"
        for module, name in ((hub, "HF_HUB_OFFLINE"), (data, "HF_HUB_OFFLINE"), (data, "HF_DATASETS_OFFLINE")):
            if hasattr(module, name):
                stack.callback(setattr, module, name, getattr(module, name))
                setattr(module, name, True)
        yield
