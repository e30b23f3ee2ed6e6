"""A trained model as lm-evaluation-harness asks for one.

The model answers as the harness's own model class for Hugging Face does (0.4.13): where context and continuation meet
tokens are cut as `likelihood.pair` does, what does not fit loses tokens at its beginning, and generation is greedy. A
context begins with the token that ends documents, as that of a tokenizer with a token for beginnings does.

Sequences of one length go through the model together, without padding, so that nothing depends on what else is asked.
"""

import io
import os
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch.nn import functional as F

from grid.errors import SpecError
from runners.evaluations.likelihood import pair
from runners.evaluations.lm_eval_documents import require_answers, unaskable
from runners.tasks.optional_packages import require_package
from runners.tasks.task import Predict
from runners.tasks.text.encoder import Encoder

SEED = 1234
"""The harness's own, for few-shot examples and whatever its tasks draw."""

_NUMBERS = 1 << 24
"""Logits per forward pass."""
_MOST_NEW = 256
"""Tokens that are generated where a task does not say; the harness's own."""
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Where a task says it, the first counts, as in the harness."""


class HarnessQuestion(NamedTuple):
    """Tokens of which the last `scored` are asked for."""

    tokens: Sequence[int]
    scored: int


class HarnessAnswer(NamedTuple):
    """log p in nats, and whether each token is the likeliest where it stands."""

    log_likelihood: float
    greedy: bool


@final
class HarnessRequest:
    """What a task asks of a model, as tokens; remembers which of its documents were too long."""

    def __init__(self, encoder: Encoder, longest: int) -> None:
        self.encoder, self.longest = encoder, longest
        self.truncated: dict[str, set[int]] = defaultdict(set)

    def continuation(self, request: Any) -> HarnessQuestion:
        """The tokens of (context, continuation), what is too long cut at its beginning.

        Raises:
            SpecError: the continuation has no tokens, or more than the model can see.
        """
        context, continuation = request.args
        before, after = self._pair(request, context, continuation)
        if not after:
            raise SpecError(f"what continues a context has tokens; {_of(request)} has {continuation!r} after it")
        if len(after) > self.longest:
            raise SpecError(
                f"what continues a context fits the model; {_of(request)} has {len(after)} tokens and the model sees "
                f"{self.longest}: raise context where the model's positions allow it, or leave the task out"
            )
        return self._fitting(request, [self.encoder.end, *before, *after], len(after))

    def windows(self, request: Any) -> list[HarnessQuestion]:
        """The tokens of a document, each in one window, with as much context as fits."""
        from lm_eval.utils import get_rolling_token_windows

        tokens = self._encoded(request, request.args[0])
        rolling = get_rolling_token_windows(
            token_list=tokens, prefix_token=self.encoder.end, max_seq_len=self.longest, context_len=1
        )
        return [HarnessQuestion([*inputs, wanted[-1]], len(wanted)) for inputs, wanted in rolling]

    def prompt(self, request: Any, room: int) -> list[int]:
        """The tokens of a prompt, cut at its beginning so that `room` are left for the answer."""
        tokens = [self.encoder.end, *self._encoded(request, request.args[0])]
        if room >= self.longest:
            raise SpecError(
                f"an answer fits the model beside its prompt; {_of(request)} asks for {room} tokens and the model sees "
                f"{self.longest}: raise context where the model's positions allow it, or leave the task out"
            )
        if len(tokens) > self.longest - room:
            self.truncated[request.task_name].add(request.doc_id)
        return tokens[-(self.longest - room) :]

    def _fitting(self, request: Any, tokens: list[int], scored: int) -> HarnessQuestion:
        if len(tokens) > self.longest + 1:
            self.truncated[request.task_name].add(request.doc_id)
        return HarnessQuestion(tokens[-(self.longest + 1) :], scored)

    def _encoded(self, request: Any, text: str) -> list[int]:
        try:
            return list(self.encoder.encode(text).ids)
        except ValueError as error:
            raise SpecError(f"{_of(request)} has a text that the task's tokenizer refuses: {error}") from error

    def _pair(self, request: Any, context: str, continuation: str) -> tuple[list[int], list[int]]:
        try:
            return pair(self.encoder, context, continuation) if context else ([], self._encoded(request, continuation))
        except ValueError as error:
            raise SpecError(f"{_of(request)} has a text that the task's tokenizer refuses: {error}") from error


def _of(request: Any) -> str:
    return f"document {request.doc_id} of the lm-eval task {request.task_name!r}"


def scored(predict: Predict, sequences: Sequence[HarnessQuestion], vocabulary: int) -> list[HarnessAnswer]:
    """What a model says of each of `sequences`, in their order."""
    found: list[HarnessAnswer | None] = [None] * len(sequences)
    for members in _together([len(each.tokens) - 1 for each in sequences], vocabulary):
        tokens = torch.tensor([list(sequences[at].tokens) for at in members])
        outputs = predict(tokens[:, :-1])
        logits = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        wanted = tokens[:, 1:].to(logits.device)
        each = F.log_softmax(logits, dim=-1).gather(2, wanted[..., None])[..., 0].to("cpu", torch.float64)
        likeliest = (logits.argmax(-1) == wanted).cpu()
        for row, at in enumerate(members):
            last = slice(-sequences[at].scored, None)
            found[at] = HarnessAnswer(float(each[row, last].sum()), bool(likeliest[row, last].all()))
    return [each for each in found if each is not None]


def _together(lengths: Sequence[int], vocabulary: int) -> Iterator[list[int]]:
    """Indices of sequences of one length, as many as a forward pass may have; longest first."""
    groups: dict[int, list[int]] = defaultdict(list)
    for index, length in enumerate(lengths):
        groups[length].append(index)
    for length, members in sorted(groups.items(), reverse=True):
        rows = max(1, _NUMBERS // max(1, length * vocabulary))
        yield from (members[start : start + rows] for start in range(0, len(members), rows))


def continued(
    predict: Predict, prompts: Sequence[list[int]], room: int, asked: HarnessRequest, until: Sequence[str]
) -> list[str]:
    """What a model writes after each prompt, greedily: to a text of `until`, a document's end, or `room` tokens."""
    found = [list[int]() for _ in prompts]
    waiting = list(range(len(prompts)))
    for _ in range(room):
        lengths = [len(prompts[at]) + len(found[at]) for at in waiting]
        going: list[int] = []
        for members in _together(lengths, asked.encoder.vocabulary):
            rows = [waiting[each] for each in members]
            logits = predict(torch.tensor([prompts[at] + found[at] for at in rows]))[:, -1]
            for at, token in zip(rows, logits.argmax(-1).tolist(), strict=True):
                found[at].append(token)
                text = asked.encoder.decode(found[at])
                if token != asked.encoder.end and not any(stop in text for stop in until):
                    going.append(at)
        waiting = going
        if not waiting:
            break
    return [_before(asked.encoder.decode(each), until) for each in found]


def _before(text: str, until: Sequence[str]) -> str:
    for stop in until:
        text = text.split(stop)[0] if stop else text
    return text


def language_model(predict: Predict, asked: HarnessRequest) -> Any:
    """An `lm_eval.api.model.LM` that answers with `predict`.

    Raises:
        EnvironmentProblem: the harness is not installed.
    """
    api = require_package("lm_eval.api.model", by="the evaluation lm_eval", extra="lm-eval")
    vocabulary = asked.encoder.vocabulary

    class Trained(api.LM):  # type: ignore[misc, name-defined]
        """Answers in the order of the requests."""

        def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
            found = scored(predict, [asked.continuation(each) for each in requests], vocabulary)
            return [tuple(each) for each in found]  # type: ignore[misc]

        def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
            windows = [asked.windows(each) for each in requests]
            answers = iter(scored(predict, [window for each in windows for window in each], vocabulary))
            return [sum(next(answers).log_likelihood for _ in each) for each in windows]

        def generate_until(self, requests: list[Any]) -> list[str]:
            groups: dict[tuple[int, tuple[str, ...]], list[int]] = defaultdict(list)
            for at, each in enumerate(requests):
                groups[generation(each)].append(at)
            found = [""] * len(requests)
            for (room, until), members in groups.items():
                prompts = [asked.prompt(requests[at], room) for at in members]
                for at, text in zip(members, continued(predict, prompts, room, asked, until), strict=True):
                    found[at] = text
            return found

    return Trained()


def generation(request: Any) -> tuple[int, tuple[str, ...]]:
    """How many tokens a request asks for at most, and what ends them.

    Raises:
        SpecError: it asks for samples, or for nothing.
    """
    wanted = dict(request.args[1])
    greedy = wanted.get("do_sample") is False  # the harness then takes no notice of a temperature
    if not greedy and (wanted.get("do_sample") or float(wanted.get("temperature") or 0) > 0):
        raise SpecError(
            f"answers are generated greedily; {_of(request)} asks for samples: set do_sample to false in it"
        )
    lengths = [wanted[name] for name in _LENGTHS if wanted.get(name) is not None]
    room = int(lengths[0]) if lengths else _MOST_NEW
    if room < 1:
        raise SpecError(f"an answer has room for a token or more; {_of(request)} asks for {room}: raise max_gen_toks")
    until = wanted.get("until") or ()
    return room, (until,) if isinstance(until, str) else tuple(until)


def check_requests(tasks: Mapping[str, Any], asked: HarnessRequest) -> None:
    """Refuse what a model could not be asked, before anything is trained.

    Raises:
        SpecError: a text that the tokenizer refuses, a continuation that does not fit, a request for samples.
    """
    with quietly():
        for task in tasks.values():
            task.set_fewshot_seed(seed=SEED)
            try:
                task.build_all_requests()
            except Exception as error:
                raise unaskable(task, error) from error
            require_answers(task)
            for request in task.instances:
                if request.request_type == "loglikelihood":
                    asked.continuation(request)
                elif request.request_type == "loglikelihood_rolling":
                    asked.windows(request)
                else:
                    asked.prompt(request, generation(request)[0])
    asked.truncated.clear()


@contextmanager
def quietly() -> Iterator[None]:
    """The harness's progress bars and remarks are kept from the terminal, and what it draws is the same every time."""
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
    """Nothing is looked for in the network, also where these packages have been imported before."""
    hub = require_package("huggingface_hub.constants", by="the evaluation lm_eval", extra="lm-eval")
    data = require_package(
        "datasets", by="the evaluation lm_eval", extra="lm-eval"
    ).config  # imported before it is told
    with ExitStack() as stack:
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
            before = os.environ.get(name)
            stack.callback(partial(_put_back, name, before))
            os.environ[name] = "1"
        for module, name in ((hub, "HF_HUB_OFFLINE"), (data, "HF_HUB_OFFLINE"), (data, "HF_DATASETS_OFFLINE")):
            if hasattr(module, name):
                stack.callback(setattr, module, name, getattr(module, name))
                setattr(module, name, True)
        yield


def _put_back(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
