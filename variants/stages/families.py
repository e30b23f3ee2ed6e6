"""The families of choices that make an operator: what every member of each must provide.

A member holds no weights: its `Number` fields are turned into parameters by `variants.model.parameters` and handed back
as keyword tensors that broadcast against [..., B, H, T, T] maps (scalars: [1|B, 1|H, 1|T, 1]) or [B, H, T, D] values
(vectors). Maps may have a leading axis of signals; functions act on the last dimensions and broadcast over the others.
Every function has an `oracle`: the same in plain floats for one query, or one query and key, sharing no code with it.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

from torch import Tensor

from variants.score_map import Scores
from variants.stages.stage import Stage, Tends


class Visible(Stage):
    """Which of the keys that the model lets a query see, it does see."""

    functions: ClassVar[tuple[str, ...]] = ()

    @property
    def ahead(self) -> int:
        """How many positions from the first on see the one that follows them; 0 where a causal model stays causal."""
        return 0

    @abstractmethod
    def restrict(self, mask: Tensor, distance: Tensor) -> Tensor:
        """Boolean [..., T_q, T_k] from the model's own mask; `distance` [T_q, T_k] is i - j, with i counted so that the
        last query sits at the last key."""

    @abstractmethod
    def oracle(self, seen: list[list[bool]], i: int, j: int) -> bool:
        """Whether query i sees key j, `seen` being the model's own mask, by query and key."""


class Preparation(Stage):
    """What is done to queries and keys before positions are put into them."""

    functions: ClassVar[tuple[str, ...]] = ("prepare", "oracle")

    @abstractmethod
    def prepare(self, q: Tensor, k: Tensor, *args: Any, **numbers: Any) -> tuple[Tensor, Tensor]:
        """Semantic channels [B, H, T, D] of queries and keys."""

    @abstractmethod
    def oracle(self, q: list[float], k: list[float], *args: Any, **numbers: Any) -> tuple[list[float], list[float]]:
        """The same for one query and one key."""


class QueryKey(NamedTuple):
    """A learned key [1, H, 1, D] and value [1, H, 1, D_v] that every query sees; None for a value of zero."""

    key: Tensor
    value: Tensor | None


class Extra(Stage):
    """A learned key and value that every query sees besides the sequence's. It is not counted in K_i."""

    functions: ClassVar[tuple[str, ...]] = ("pair", "oracle")

    @property
    def has_value(self) -> bool:
        """Whether the pair's value can differ from 0."""
        return True

    @abstractmethod
    def pair(self, *args: Any, **numbers: Any) -> QueryKey | None:
        """The pair; None where there is none."""

    @abstractmethod
    def oracle(self, *args: Any, **numbers: Any) -> tuple[list[float], list[float] | None] | None:
        """The same as lists, for one head."""


class Product(Stage):
    """How a query and a key become a logit."""

    functions: ClassVar[tuple[str, ...]] = ("logits", "oracle")
    nonnegative: ClassVar[bool] = False
    """Whether logits cannot be below 0."""

    @abstractmethod
    def logits(self, q: Tensor, k: Tensor, distance: Tensor, *args: Any, **numbers: Any) -> Tensor:
        """z [..., T_q, T_k] from channels [..., T, D], scaled once; `distance` [T_q, T_k] is i - j."""

    def mean_logits(self, q: Tensor, k: Tensor, distance: Tensor, signals: int, **numbers: Tensor) -> Tensor:
        """The mean of the logits of `signals` slices of the channels."""
        return self.logits(split_signals(q, signals), split_signals(k, signals), distance, **numbers).mean(0)

    @abstractmethod
    def oracle(self, q: list[float], k: list[float], distance: int, length: int, *args: Any, **numbers: Any) -> float:
        """z for one query and one key; `length` is the number of keys of the sequence."""


class FeatureProduct(Product):
    """The scaled product of features:  z_ij = phi(q_i) . phi(k_j) / sqrt(d),  phi the same for queries and keys."""

    functions: ClassVar[tuple[str, ...]] = ("features", "oracle")

    @abstractmethod
    def features(self, x: Tensor, *args: Any, **numbers: Any) -> Tensor:
        """phi(x) [..., T, D] of queries or keys [..., T, D]."""

    def logits(self, q: Tensor, k: Tensor, distance: Tensor, **numbers: Tensor) -> Tensor:  # noqa: ARG002
        return (self.features(q, **numbers) / math.sqrt(q.shape[-1])) @ self.features(k, **numbers).transpose(-2, -1)


def split_signals(x: Tensor, signals: int) -> Tensor:
    """[B, H, T, D] as [S, B, H, T, D / S]."""
    return x.reshape(*x.shape[:-1], signals, -1).movedim(-2, 0)


class Transform(Stage):
    """What is done to a logit before positions are added to it."""

    functions: ClassVar[tuple[str, ...]] = ("transform", "oracle")

    @abstractmethod
    def transform(self, z: Tensor, *args: Any, **numbers: Any) -> Tensor:
        """The shape of `z`."""

    @abstractmethod
    def oracle(self, z: float, *args: Any, **numbers: Any) -> float:
        """The same for one logit."""


class Forgetting(Stage):
    """What lowers a logit because of the tokens between key and query."""

    functions: ClassVar[tuple[str, ...]] = ("lowering", "oracle")

    @abstractmethod
    def lowering(self, z: Tensor, mask: Tensor, *args: Any, **numbers: Any) -> Tensor | None:
        """What is subtracted from z [..., B, H, T, T], of that shape or one that broadcasts; None for 0.

        Hidden entries of z are 0.
        """

    @abstractmethod
    def oracle(
        self, first: list[list[float]], seen: list[list[bool]], i: int, j: int, *args: Any, **numbers: Any
    ) -> float:
        """What is subtracted from z_ij. `first` are the logits of the first head, 0 where hidden; `seen` is what each
        query sees; every number comes as a list with its value at each token."""


class Margin(Stage):
    """How the margin of a logit over the relevance threshold grows with the number of visible keys."""

    functions: ClassVar[tuple[str, ...]] = ("factor", "oracle")

    @abstractmethod
    def factor(self, count: Tensor, *args: Any, **numbers: Any) -> Tensor | None:
        """c [..., T, 1] in  a = gamma + c (z - gamma);  None for c = 1.  `count` [..., T, 1]: visible keys K_i."""

    @abstractmethod
    def oracle(self, count: int, *args: Any, **numbers: Any) -> float:
        """c."""


class Gate(Stage):
    """What is subtracted from a logit because of a second, gating product of query and key."""

    functions: ClassVar[tuple[str, ...]] = ("suppression", "oracle")

    @property
    def takes_channels(self) -> bool:
        """Whether the gate's channels come out of the head's own width."""
        return False

    @property
    @abstractmethod
    def channels(self) -> int:
        """How many of the last channels of q and k carry the gate."""

    @abstractmethod
    def suppression(self, q: Tensor, k: Tensor, *args: Any, **numbers: Any) -> Tensor:
        """[B, H, T, T] from the gate channels [B, H, T, G] of queries and keys."""

    @abstractmethod
    def oracle(self, q: list[float], k: list[float], *args: Any, **numbers: Any) -> float:
        """The same for one query and one key."""


Range = Literal["positive", "nonnegative", "any", "as its logit", "constant"]
"""Of a score: above 0; not below 0; any number; not below 0 where its logit is not; 1, whatever the logit."""


class Score(Stage):
    """How much a key counts, before normalisation. A member derives from `LogScore` or `PlainScore`."""

    advice: ClassVar[str] = "derive it from LogScore and define log_score, or from PlainScore and define score"
    range: ClassVar[Range]
    homogeneous: ClassVar[bool] = False
    """Whether f(c a) is c^n f(a) for c > 0, with one n: what multiplies logits multiplies scores."""
    identities: ClassVar[tuple[Tends, ...]] = ()

    @abstractmethod
    def scores(self, a: Tensor, mask: Tensor, **numbers: Tensor) -> Scores:
        """The scores of a map of logits."""

    @abstractmethod
    def oracle(self, a: float, *args: Any, **numbers: Any) -> float:
        """f(a)."""

    def size_oracle(self, a: float, **numbers: Any) -> float:
        """What a key adds to a sum of sizes: |f(a)|, and more only where a sign of 0 makes f(a) itself 0."""
        return abs(self.oracle(a, **numbers))

    def heads_of(self, field: str, heads: int) -> slice:  # noqa: ARG002  (one score for all heads)
        """Which of an operator's heads the number `field` is for."""
        return slice(0, heads)

    def of_head(self, head: int, heads: int) -> "tuple[Score, str]":  # noqa: ARG002  (one score for all heads)
        """The score of one head, and the prefix its numbers have among this one's."""
        return self, ""

    def check(self, heads: int) -> None:
        """Raise ValueError when an operator of so many heads cannot have this score."""


class LogScore(Score):
    """A score known by the logarithm of its magnitude, so that nothing overflows."""

    functions: ClassVar[tuple[str, ...]] = ("log_score", "oracle")
    range: ClassVar[Range] = "positive"

    @abstractmethod
    def log_score(self, a: Tensor, *args: Any, **numbers: Any) -> Tensor:
        """ln |f(a)|, the shape of `a`; finite wherever `a` is."""

    def sign(self, a: Tensor) -> Tensor | None:  # noqa: ARG002  (the family's signature)
        """The sign of f(a) where f can be negative: -1, 0 or 1, without a gradient; None for a positive score."""
        return None

    def scores(self, a: Tensor, mask: Tensor, **numbers: Tensor) -> Scores:
        log = self.log_score(a, **numbers)
        return Scores(mask, log=log, sign=self.sign(a), score=lambda logits: self.log_score(logits, **numbers))


class PlainScore(Score):
    """A score that is computed as it is: it may be zero or negative, and grows slowly enough not to overflow."""

    functions: ClassVar[tuple[str, ...]] = ("score", "oracle")
    range: ClassVar[Range] = "any"

    @abstractmethod
    def score(self, a: Tensor, *args: Any, **numbers: Any) -> Tensor:
        """f(a), the shape of `a`; finite wherever `a` is."""

    def scores(self, a: Tensor, mask: Tensor, **numbers: Tensor) -> Scores:
        return Scores(mask, plain=self.score(a, **numbers), score=lambda logits: self.score(logits, **numbers))


class AttentionWeights(NamedTuple):
    """Attention weights [..., T, T], 0 where nothing may be seen, and the weight [..., T, 1] of what is not a key."""

    keys: Tensor
    ground: Tensor | None


class Normaliser(Stage):
    """From scores to weights. What is not visible gets weight 0 and leaves no trace."""

    functions: ClassVar[tuple[str, ...]] = ("weights", "oracle")
    needs: ClassVar[Literal["exponential", "logarithm", "nonnegative", "signs", "any"]] = "nonnegative"
    """Of the score: that its logarithm is the logit; positive and known by its logarithm; not below zero; that it can
    be below zero; nothing."""
    scale_free: ClassVar[bool] = False
    """Whether the weights of a row stay the same when all its scores are multiplied by one positive number."""
    averages: ClassVar[bool] = False
    """Whether K keys of score 1 weigh 1 / K each."""
    shared: ClassVar[bool] = True
    """Whether the weight of a key depends on the scores of others."""
    has_ground: ClassVar[bool] = False
    """Whether `weights` leaves weight to a ground state."""

    def relevance(self, *args: Any, **numbers: Any) -> Tensor | None:  # noqa: ARG002  (the family's signature)
        """The relevance threshold gamma that a margin is measured from, in units of the logit; None for 0."""
        return None

    def relevance_oracle(self, *args: Any, **numbers: Any) -> float:  # noqa: ARG002  (the family's signature)
        """The same in plain floats."""
        return 0.0

    @abstractmethod
    def weights(self, scores: Scores, *args: Any, **numbers: Any) -> AttentionWeights:
        """Weights from the scores of a map; a row that sees nothing gets 0, or rests in the ground state."""

    @abstractmethod
    def oracle(
        self, f: list[float], score: Callable[[float], float], *args: Any, **numbers: Any
    ) -> tuple[list[float], float]:
        """Weights of the visible keys and of the ground state (0 without one); `score` scores further logits.

        A normaliser that needs "signs" is given the scores' sizes; the weights then take the scores' signs.
        """


class Merge(Stage):
    """How the maps of several signals become one."""

    functions: ClassVar[tuple[str, ...]] = ("merge", "oracle")

    @property
    def of_logits(self) -> bool:
        """Whether the logits of the signals are averaged before the score, so that there is one map only."""
        return False

    @property
    def signals(self) -> int | None:
        """How many signals it merges; None for any number."""
        return None

    @property
    def heads_joined(self) -> int:
        """How many heads of the model become one wider head of this operator."""
        return 1

    @abstractmethod
    def merge(self, weights: AttentionWeights, *args: Any, **numbers: Any) -> AttentionWeights:
        """One map [B, H, T, T] from maps [S, B, H, T, T]; the ground state's weight likewise."""

    @abstractmethod
    def oracle(
        self, maps: list[list[float]], grounds: list[float], *args: Any, **numbers: Any
    ) -> tuple[list[float], float]:
        """The same for one query; one row and one ground weight per signal."""


class Rescale(Stage):
    """What is done to the weights of a row after normalisation."""

    functions: ClassVar[tuple[str, ...]] = ("rescale", "oracle")
    only_scales: ClassVar[bool] = False
    """Whether a row and its ground state are multiplied by one number."""

    @abstractmethod
    def rescale(self, weights: AttentionWeights, mask: Tensor, *args: Any, **numbers: Any) -> AttentionWeights:
        """Weights [B, H, T, T]; `mask` is boolean, True = may look."""

    @abstractmethod
    def oracle(
        self, weights: list[float], ground: float, length: int, *args: Any, **numbers: Any
    ) -> tuple[list[float], float]:
        """The same for the visible keys of one query; `length` is the number of keys there are."""


class Readout(Stage):
    """From weights and values to the output of a head."""

    functions: ClassVar[tuple[str, ...]] = ("output", "oracle")
    needs_ground: ClassVar[bool] = False

    @abstractmethod
    def output(self, weights: AttentionWeights, v: Tensor, *args: Any, **numbers: Any) -> Tensor:
        """[B, H, T, D] from weights and values [B, H, T, D]."""

    @abstractmethod
    def oracle(
        self, weights: list[float], ground: float, v: list[list[float]], *args: Any, **numbers: Any
    ) -> list[float]:
        """The output of one query, from one weight per key (0 where hidden) and the values of all keys."""


class HeadNorm(Stage):
    """What is done to the output vector of each head as a whole."""

    functions: ClassVar[tuple[str, ...]] = ("normalise", "oracle")
    ignores_size: ClassVar[bool] = False
    """Whether an output multiplied by a positive number gives what it gives itself."""

    @abstractmethod
    def normalise(self, output: Tensor, *args: Any, **numbers: Any) -> Tensor:
        """[B, H, T, D]."""

    @abstractmethod
    def oracle(self, output: list[float], *args: Any, **numbers: Any) -> list[float]:
        """The same for one query."""


class OutputGate(Stage):
    """What the output of a head is multiplied by before heads are joined."""

    functions: ClassVar[tuple[str, ...]] = ("gate", "oracle")

    @abstractmethod
    def gate(self, output: Tensor, *args: Any, **numbers: Any) -> Tensor:
        """[B, H, T, D]."""

    @abstractmethod
    def oracle(self, output: list[float], *args: Any, **numbers: Any) -> list[float]:
        """The same for one query."""
