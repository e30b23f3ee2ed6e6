"""The families of choices that make an operator, with the methods that every member must define.

A member holds no weights: `ablate.variants.model.parameters` turns its `Number` fields into parameters. Methods get
them as keyword tensors: scalars broadcast against maps, vectors against values. `ablate.variants.axes` has the names of
axes. Every method has an `oracle` in plain floats for one query.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

from jaxtyping import Float
from torch import Tensor

from ablate.variants.axes import Distances, HeadOutput, HeadValues, Keys, Map, Mask, Queries, Scalar
from ablate.variants.score_map import Scores
from ablate.variants.stages.stage import Stage, Tends

Rows = list[list[float]]
"""A matrix in plain floats."""
FloatScore = Callable[[float], float]
"""A score in plain floats."""


class Visible(Stage):
    """Which keys a query sees, among those that the model allows."""

    @property
    def ahead(self) -> int:
        """Number of positions from the first on that see the next one; 0 if a causal model stays causal."""
        return 0

    @abstractmethod
    def restrict(self, mask: Mask, distance: Distances) -> Mask:
        """Return the operator's mask from the model's own. The last query sits at the last key."""

    @abstractmethod
    def oracle(self, seen: list[list[bool]], i: int, j: int) -> bool:
        """Return True if query i sees key j; `seen` is the model's own mask by query and key."""


class Preparation(Stage):
    """Change of queries and keys before positions."""

    @abstractmethod
    def prepare(
        self,
        q: Float[Tensor, "*heads queries channels"],
        k: Float[Tensor, "*key_heads keys channels"],
        *args: Any,
        **numbers: Any,
    ) -> tuple[Float[Tensor, "*heads queries channels"], Float[Tensor, "*key_heads keys channels"]]:
        """Prepare the semantic channels of queries and keys."""

    @abstractmethod
    def oracle(self, q: list[float], k: list[float], *args: Any, **numbers: Any) -> tuple[list[float], list[float]]:
        """Do the same for one query and one key."""


class QueryKey(NamedTuple):
    """A learned key [1, H, 1, D] and value [1, H, 1, D_v] that every query sees; None for a value of zero."""

    key: Float[Tensor, "1 #heads 1 channels"]
    value: Float[Tensor, "1 #heads 1 values"] | None


class Extra(Stage):
    """A learned key and value that every query sees besides the sequence's. It is not counted in K_i."""

    @property
    def has_value(self) -> bool:
        """True if the pair's value can differ from 0."""
        return True

    @abstractmethod
    def pair(self, *args: Any, **numbers: Any) -> QueryKey | None:
        """Return the pair, or None if there is none."""

    @abstractmethod
    def oracle(self, *args: Any, **numbers: Any) -> tuple[list[float], list[float] | None] | None:
        """Return the pair as lists, for one head."""


class Product(Stage):
    """The logit of a query and a key."""

    nonnegative: ClassVar[bool] = False
    """True if no logit is below 0."""

    @abstractmethod
    def logits(self, q: Queries, k: Keys, distance: Distances, *args: Any, **numbers: Any) -> Map:
        """Compute the scaled z."""

    def mean_logits(self, q: Queries, k: Keys, distance: Distances, signals: int, **numbers: Tensor) -> Map:
        """Compute the mean of the logits of `signals` slices of the channels."""
        return self.logits(split_signals(q, signals), split_signals(k, signals), distance, **numbers).mean(0)

    @abstractmethod
    def oracle(self, q: list[float], k: list[float], distance: int, length: int, *args: Any, **numbers: Any) -> float:
        """Compute z of one query and one key; `length` is the number of keys."""


class FeatureProduct(Product):
    """The scaled product of features: z_ij = phi(q_i) . phi(k_j) / sqrt(d), with one phi for queries and keys."""

    @abstractmethod
    def features(
        self, x: Float[Tensor, "*maps tokens channels"], *args: Any, **numbers: Any
    ) -> Float[Tensor, "*maps tokens features"]:
        """Compute phi(x) of queries or keys."""

    def logits(self, q: Queries, k: Keys, distance: Distances, **numbers: Tensor) -> Map:
        return (self.features(q, **numbers) / math.sqrt(q.shape[-1])) @ self.features(k, **numbers).transpose(-2, -1)


def split_signals(
    x: Float[Tensor, "*heads tokens channels"], signals: int
) -> Float[Tensor, "signals *heads tokens slice"]:
    """Cut channels into slices, one for each signal."""
    return x.reshape(*x.shape[:-1], signals, -1).movedim(-2, 0)


class Transform(Stage):
    """Change of a logit before the position bias."""

    @abstractmethod
    def transform(self, z: Map, *args: Any, **numbers: Any) -> Map:
        """Transform logits; keep the shape of `z`."""

    @abstractmethod
    def oracle(self, z: float, *args: Any, **numbers: Any) -> float:
        """Do the same for one logit."""


class Forgetting(Stage):
    """Lowers a logit because of the tokens between key and query."""

    @abstractmethod
    def lowering(self, z: Map, mask: Mask, *args: Any, **numbers: Any) -> Float[Tensor, "*#maps queries keys"] | None:
        """Compute what to subtract from z; None for 0. Hidden entries of z are 0."""

    @abstractmethod
    def oracle(self, first: Rows, seen: list[list[bool]], i: int, j: int, *args: Any, **numbers: Any) -> float:
        """Compute what to subtract from z_ij.

        `first` holds the logits of the first head, 0 if hidden; `seen` is the mask by query and key. Every number is a
        list with its value at each token.
        """


class Margin(Stage):
    """Growth of a logit's margin over the relevance threshold with the number of visible keys."""

    @abstractmethod
    def factor(
        self, count: Float[Tensor, "*#maps queries 1"], *args: Any, **numbers: Any
    ) -> Float[Tensor, "*#maps queries 1"] | None:
        """Compute c in a = gamma + c (z - gamma), None for c = 1; `count` is K_i."""

    @abstractmethod
    def oracle(self, count: int, *args: Any, **numbers: Any) -> float:
        """Compute c."""


class Gate(Stage):
    """Lowers a logit by a second, gating product of query and key."""

    @property
    def takes_channels(self) -> bool:
        """True if the gate takes its channels from the head's own width."""
        return False

    @property
    @abstractmethod
    def channels(self) -> int:
        """Number of the last channels of q and k that carry the gate."""

    @abstractmethod
    def suppression(self, q: Queries, k: Keys, *args: Any, **numbers: Any) -> Map:
        """Compute b from the gate channels of queries and keys."""

    @abstractmethod
    def oracle(self, q: list[float], k: list[float], *args: Any, **numbers: Any) -> float:
        """Do the same for one query and one key."""


Range = Literal["positive", "nonnegative", "any", "as its logit", "constant"]
"""Range of a score. "as its logit": not below 0 if its logit is not; "constant": 1 for every logit."""


class Score(Stage):
    """Weight of a key before normalisation. A member derives from `LogScore` or `PlainScore`."""

    advice: ClassVar[str] = "derive it from LogScore and define log_score, or from PlainScore and define score"
    range: ClassVar[Range]
    homogeneous: ClassVar[bool] = False
    """True if f(c a) = c^n f(a) for every c > 0, with one n."""
    identities: ClassVar[tuple[Tends, ...]] = ()

    @abstractmethod
    def scores(self, a: Map, mask: Mask, **numbers: Tensor) -> Scores:
        """Compute the scores of a map of logits."""

    @abstractmethod
    def oracle(self, a: float, *args: Any, **numbers: Any) -> float:
        """Compute f(a)."""

    def size_oracle(self, a: float, **numbers: Any) -> float:
        """Compute the summand of a sum of sizes: |f(a)|, or more if a sign of 0 makes f(a) itself 0."""
        return abs(self.oracle(a, **numbers))

    def heads_of(self, field: str, heads: int) -> slice:
        """Return the heads that have the number `field`."""
        return slice(0, heads)

    def of_head(self, head: int, heads: int) -> "tuple[Score, str]":
        """Return the score of one head and the prefix of its numbers."""
        return self, ""

    def check(self, heads: int) -> None:
        """Raise ValueError if an operator with `heads` heads cannot have this score."""


class LogScore(Score):
    """A score given by the logarithm of its magnitude, so that nothing overflows."""

    range: ClassVar[Range] = "positive"

    @abstractmethod
    def log_score(self, a: Float[Tensor, "*#map"], *args: Any, **numbers: Any) -> Float[Tensor, "*#map"]:
        """Compute ln |f(a)| in the shape of `a`; finite if `a` is."""

    def sign(self, a: Float[Tensor, "*map"]) -> Float[Tensor, "*map"] | None:
        """Compute the sign of f(a), -1, 0 or 1 without a gradient; None for a positive score."""
        return None

    def scores(self, a: Map, mask: Mask, **numbers: Tensor) -> Scores:
        log = self.log_score(a, **numbers)
        return Scores(mask, log=log, sign=self.sign(a), score=lambda logits: self.log_score(logits, **numbers))


class PlainScore(Score):
    """A score given by its value: it may be zero or negative, and grows too slowly to overflow."""

    range: ClassVar[Range] = "any"

    @abstractmethod
    def score(self, a: Float[Tensor, "*map"], *args: Any, **numbers: Any) -> Float[Tensor, "*map"]:
        """Compute f(a) in the shape of `a`; finite if `a` is."""

    def scores(self, a: Map, mask: Mask, **numbers: Tensor) -> Scores:
        return Scores(mask, plain=self.score(a, **numbers), score=lambda logits: self.score(logits, **numbers))


class AttentionWeights(NamedTuple):
    """Weights of keys, 0 for hidden keys, and of the ground state or sink."""

    keys: Map
    ground: Float[Tensor, "*maps queries 1"] | None


class Normaliser(Stage):
    """Maps scores to weights. Hidden keys get weight 0 and have no effect."""

    needs: ClassVar[Literal["exponential", "logarithm", "nonnegative", "signs", "any"]] = "nonnegative"
    """Requirement on the score. "exponential": its logarithm is the logit. "logarithm": it is a positive `LogScore`.
    "nonnegative": it is never below 0. "signs": it can be below 0."""
    scale_free: ClassVar[bool] = False
    """True if a positive factor on all scores of a row leaves its weights unchanged."""
    averages: ClassVar[bool] = False
    """True if K keys of score 1 weigh 1 / K each."""
    shared: ClassVar[bool] = True
    """True if the weight of a key depends on the scores of other keys."""
    has_ground: ClassVar[bool] = False
    """True if `weights` gives weight to a ground state or sink."""

    def relevance(self, *args: Any, **numbers: Any) -> Scalar | None:
        """Return the relevance threshold gamma in units of the logit; None for 0."""
        return None

    def relevance_oracle(self, *args: Any, **numbers: Any) -> float:
        """Do the same in plain floats."""
        return 0.0

    @abstractmethod
    def weights(self, scores: Scores, *args: Any, **numbers: Any) -> AttentionWeights:
        """Compute weights from scores; a row that sees nothing gets 0, or weight 1 in the ground state."""

    @abstractmethod
    def oracle(self, f: list[float], score: FloatScore, *args: Any, **numbers: Any) -> tuple[list[float], float]:
        """Compute weights of the visible keys and of the ground state (0 without one).

        `score` maps further logits to scores. A normaliser that needs "signs" gets the scores' sizes; the caller then
        gives the weights the scores' signs.
        """


class Merge(Stage):
    """Merges the maps of several signals into one."""

    of_logits: ClassVar[bool] = False
    """True if the logits of the signals are averaged before the score, so that there is one map."""
    signals: ClassVar[int | None] = None
    """Number of signals it merges; None for any."""

    @property
    def heads_joined(self) -> int:
        """Number of model heads that become one wider head of this operator."""
        return 1

    @abstractmethod
    def merge(self, weights: AttentionWeights, *args: Any, **numbers: Any) -> AttentionWeights:
        """Merge the maps of the signals into one, and ground weights likewise."""

    @abstractmethod
    def oracle(self, maps: Rows, grounds: list[float], *args: Any, **numbers: Any) -> tuple[list[float], float]:
        """Do the same for one query, with one row and one ground weight per signal."""


class Rescale(Stage):
    """Change of a row of weights after normalisation."""

    only_scales: ClassVar[bool] = False
    """True if a row and its ground state are multiplied by one number."""

    @abstractmethod
    def rescale(self, weights: AttentionWeights, mask: Mask, *args: Any, **numbers: Any) -> AttentionWeights:
        """Rescale weights; in `mask`, True = visible."""

    @abstractmethod
    def oracle(
        self, weights: list[float], ground: float, length: int, *args: Any, **numbers: Any
    ) -> tuple[list[float], float]:
        """Do the same for the visible keys of one query; `length` is the number of all keys."""


class Readout(Stage):
    """Maps weights and values to the output of a head."""

    needs_ground: ClassVar[bool] = False

    @abstractmethod
    def output(self, weights: AttentionWeights, v: HeadValues, *args: Any, **numbers: Any) -> HeadOutput:
        """Compute the output from weights and values."""

    @abstractmethod
    def oracle(self, weights: list[float], ground: float, v: Rows, *args: Any, **numbers: Any) -> list[float]:
        """Compute the output of one query from the weights (0 if hidden) and values of all keys."""


class HeadNorm(Stage):
    """Norm of the output vector of each head."""

    ignores_size: ClassVar[bool] = False
    """True if a positive factor on the output has no effect."""

    @abstractmethod
    def normalise(self, output: HeadOutput, *args: Any, **numbers: Any) -> HeadOutput:
        """Normalise the output."""

    @abstractmethod
    def oracle(self, output: list[float], *args: Any, **numbers: Any) -> list[float]:
        """Do the same for one query."""


class OutputGate(Stage):
    """Factor of a head's output before heads are joined."""

    @abstractmethod
    def gate(self, output: HeadOutput, *args: Any, **numbers: Any) -> HeadOutput:
        """Gate the output."""

    @abstractmethod
    def oracle(self, output: list[float], *args: Any, **numbers: Any) -> list[float]:
        """Do the same for one query."""
