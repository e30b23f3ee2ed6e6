"""A teacher in a local Hugging Face directory: a causal language model.

The package `transformers` reads it, from safetensors files alone: no code of the directory is run, and nothing is
downloaded.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Annotated, Any, Literal, Self, final

import torch
from jaxtyping import Float
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.grid.optional_packages import require_package
from ablate.grid.spec import OutsideKey
from ablate.training.tasks.distillation.teacher import (
    Teacher,
    Teaching,
    require_positions,
    require_tokenizer,
    require_tokens,
)
from ablate.training.tasks.task import Task
from ablate.training.tasks.text.corpus import content_hash
from ablate.training.tasks.user_files import absolute_path, cache_by_file, require_hash
from ablate.variants.axes import Ids, Visibility

_CONFIG, _TOKENIZER = "config.json", "tokenizer.json"


@final
class HuggingFaceModel(Teacher):
    """A causal language model that `transformers` loads from a directory with .safetensors files.

    With `precision="bfloat16"` the weights are held in bfloat16, too: two bytes per parameter, not four.
    """

    kind: Literal["hugging_face_model"] = "hugging_face_model"
    directory: Annotated[str, OutsideKey()]
    """Directory of config.json, the weights and, optionally, tokenizer.json."""
    content_hash: Annotated[str | None, Field(pattern="^[0-9a-f]{32}$")] = None
    """blake2b-128 over config.json and the weight files; filled in by default."""
    vocabulary: Annotated[PositiveInt | None, OutsideKey()] = None
    """Number of tokens, filled in from the directory."""
    positions: Annotated[PositiveInt | None, OutsideKey()] = None
    """Longest sequence, filled in from the directory; None if unknown."""

    @model_validator(mode="after")
    def _is_what_lies_there(self) -> Self:
        """Fill in hash and sizes; a complete spec does not need the model to be present."""
        object.__setattr__(self, "directory", absolute_path("directory", self.directory))
        filled = self.content_hash is not None and self.vocabulary is not None
        if filled and not Path(self.directory).exists():
            return self
        try:
            actual = _hash(Path(self.directory))
            if self.content_hash is None:
                self.set_normal_form(content_hash=actual)
            require_hash(self.content_hash, actual, self.directory)
            if not filled:
                vocabulary, positions = _sizes(self.directory, actual)
                self.set_normal_form(vocabulary=vocabulary, positions=positions)
        except SpecError as error:
            raise ValueError(str(error)) from error
        return self

    @property
    def label(self) -> str:
        return f"{Path(self.directory).name} {str(self.content_hash)[:8]}"

    def check(self, task: Task) -> None:
        require_tokens(self.name(), self.vocabulary, task)
        require_positions(self.name(), self.positions, task)

    def open(self, task: Task) -> Teaching:
        require_hash(self.content_hash, _hash(Path(self.directory)), self.directory)
        transformers = _transformers()
        tokenizer = Path(self.directory) / _TOKENIZER
        if tokenizer.is_file():
            require_tokenizer(self.name(), _encoder(tokenizer), task)
        with _quietly(transformers), _as_loaded(self.directory):
            model, loading = transformers.AutoModelForCausalLM.from_pretrained(
                self.directory,
                dtype=getattr(torch, self.precision),
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
        if loading["missing_keys"]:
            missing = sorted(loading["missing_keys"])
            raise SpecError(
                f"{self.directory} lacks {len(missing)} weights, such as {missing[0]}; save the whole model there"
            )
        record = {name: getattr(self, name) for name in ("kind", "directory", "content_hash")}
        kinds = {"architecture": type(model).__name__, "transformers": transformers.__version__}
        teaching = _Pretrained(model, record | kinds)
        teaching.require_finite(self.name())
        return teaching


@final
class _Pretrained(Teaching):
    def __init__(self, model: Any, record: dict[str, Any]) -> None:
        super().__init__(model, record)
        self._takes_positions = "position_ids" in inspect.signature(model.forward).parameters
        self._window = _window(model.config)

    def forward(self, inputs: Ids, visible: Visibility | None) -> Float[Tensor, "batch tokens vocabulary"]:
        arguments = {} if visible is None else self._mask_arguments(inputs, visible)
        return self.model(input_ids=inputs, use_cache=False, **arguments).logits  # type: ignore[no-any-return]

    def _mask_arguments(self, inputs: Ids, visible: Visibility) -> dict[str, Tensor]:
        """Make mask and positions; positions count from the start of the row."""
        length = inputs.shape[1]
        if self._window is not None:
            raise SpecError(
                f"the model sees windows of {self._window} keys, which a mask of the task's would replace; use another "
                "teacher, or a task without hidden keys"
            )
        causal = torch.ones(length, length, dtype=torch.bool, device=inputs.device).tril()
        seen = (visible & causal).expand(len(inputs), length, length)[:, None]
        dtype = next(self.model.parameters()).dtype
        mask = torch.zeros(seen.shape, dtype=dtype, device=inputs.device).masked_fill(~seen, torch.finfo(dtype).min)
        positions = torch.arange(length, device=inputs.device)[None]
        return {"attention_mask": mask} | ({"position_ids": positions} if self._takes_positions else {})


def _transformers() -> Any:
    return require_package("transformers", by="a teacher from a Hugging Face directory", extra="transformers")


def _window(config: Any) -> int | None:
    text = config.get_text_config()
    window = getattr(text, "sliding_window", None)
    return window if window and getattr(text, "use_sliding_window", True) else None


def _encoder(path: Path) -> Any:
    from ablate.training.tasks.text.tokenizers import LibraryEncoder, library

    try:
        tokenizer = library("tokenizer_file").Tokenizer.from_file(str(path))
    except EnvironmentProblem:
        raise
    except Exception as error:  # the package raises plain exceptions
        raise SpecError(f"{path} is no {_TOKENIZER} of the package tokenizers: {error}") from error
    return LibraryEncoder(tokenizer, -1, None, {"kind": "teacher", "path": str(path)})


@lru_cache(maxsize=16)
def _sizes(directory: str, content_hash: str) -> tuple[int, int | None]:
    del content_hash  # other content is another entry
    transformers = _transformers()
    with _quietly(transformers), _as_loaded(directory):
        config = transformers.AutoConfig.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
        text = config.get_text_config()
        return int(text.vocab_size), getattr(text, "max_position_embeddings", None)


@contextmanager
def _as_loaded(directory: str) -> Iterator[None]:
    try:
        yield
    except (EnvironmentProblem, SpecError, MemoryError):
        raise
    except Exception as error:  # the package raises many classes
        said = str(error).strip().partition("\n")[0]
        raise SpecError(
            f"{directory} is no causal language model that transformers loads from its files: {type(error).__name__}: "
            f"{said}"
        ) from error


@contextmanager
def _quietly(transformers: Any) -> Iterator[None]:
    logging = transformers.utils.logging
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def _hash(directory: Path) -> str:
    if not directory.is_dir():
        known = sorted(path.parent.name for path in directory.parent.glob(f"*/{_CONFIG}"))
        beside = f"; {directory.parent} has {known}" if known else ""
        raise SpecError(
            f"there is no directory {directory}; give that of a model, with {_CONFIG} and .safetensors{beside}"
        )
    weights = sorted(directory.glob("*.safetensors"))
    if not weights or not (directory / _CONFIG).is_file():
        raise SpecError(f"{directory} lacks {_CONFIG} or .safetensors files; write it with save_pretrained")
    return content_hash(*(_hash_of(path) for path in (directory / _CONFIG, *weights)))


@cache_by_file(entries=4096)  # every trial of a grid names one teacher
def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, lambda: blake2b(digest_size=16)).hexdigest()
