"""Sentences of a probabilistic grammar: the words, their probabilities, and a sampler that draws all at once.

    sentence   ->  subject (preposition noun)* verb [object] stop
    subject, object  ->  name | noun           a name is singular
    noun, verb       ->  a lemma in its singular or plural form

The earlier tokens determine the class of a token. A model has to remember three things:

- agreement: the verb has the number of the subject, whatever the nouns in between;
- repetition: a name is, with probability `repeating`, one of the last `slots` names, each place equally likely, and
  otherwise (or when there is none yet) any name;
- topic: noun and verb lemmas have probabilities of their own in each topic. A topic is drawn uniformly at the beginning
  and, with probability `switching`, anew after a stop. It is never written: the one hidden variable of the process.

Lemmas, names and prepositions have Zipf probabilities, rank^-exponent / sum; a topic multiplies those of every
`topics`-th lemma by e^strength and divides by the new sum.
"""

import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn import functional as F

from ablate.training.tasks.counter_rng import Draws
from ablate.training.tasks.task import Task
from ablate.variants import Tokens
from ablate.variants.axes import Ids

Probability = Annotated[float, Field(ge=0, le=1)]

_STEEPEST = 100.0
"""Largest logarithm of odds: words of probability e^-100 are never drawn, and e^1000 overflows."""

STOP = 0
CLASSES = ("stop", "preposition", "noun", "verb", "name")


class GrammarProcess(Task):
    """The process: sizes of the classes of words, and probabilities.

    Token ids are in this order: stop, prepositions, singular nouns, plural nouns, singular verbs, plural verbs, names.
    """

    prepositions: PositiveInt = 8
    """Different prepositions."""
    nouns: PositiveInt = 64
    """Lemmas; each has two forms."""
    verbs: PositiveInt = 32
    """Lemmas; each has two forms."""
    names: PositiveInt = 64
    """Different names."""
    exponent: Annotated[float, Field(ge=0, le=_STEEPEST)] = 1.0
    """Exponent of Zipf's law; 0 makes all words of a class equally likely."""
    topics: PositiveInt = 4
    """Different topics; a lemma belongs to one of them."""
    strength: Annotated[float, Field(ge=0, le=_STEEPEST)] = 3.0
    """Nats by which a topic raises its own lemmas before their probabilities are normalised; 0: no topic."""
    switching: Probability = 0.1
    """Probability of a new topic after a sentence."""
    attractor: Annotated[float, Field(ge=0, lt=1)] = 0.4
    """Probability of a preposition and a noun before the verb, and of each further one."""
    transitive: Probability = 0.7
    """Probability of an object after the verb."""
    naming: Probability = 0.4
    """Probability of a name as subject or object instead of a noun."""
    repeating: Probability = 0.7
    """Probability that a name is one of the last `slots` names."""
    slots: PositiveInt = 4
    """Number of last names that may be repeated."""
    plural: Probability = 0.5
    """Probability of the plural, of each noun."""

    @property
    def inputs(self) -> Tokens:
        return Tokens(self.first_name + self.names)

    @property
    def first_noun(self) -> int:
        """First noun; plurals begin `nouns` later."""
        return 1 + self.prepositions

    @property
    def first_verb(self) -> int:
        """First verb; plurals begin `verbs` later."""
        return self.first_noun + 2 * self.nouns

    @property
    def first_name(self) -> int:
        return self.first_verb + 2 * self.verbs

    @property
    def class_names(self) -> Sequence[str]:
        return CLASSES

    def token_classes(self, inputs: Ids) -> Int[Tensor, "batch tokens"]:
        """Return the index in `class_names` of each token of ids, int64 on their device."""
        first = torch.tensor([1, self.first_noun, self.first_verb, self.first_name], device=inputs.device)
        return torch.searchsorted(first, inputs.contiguous(), right=True)


def zipf(count: int, exponent: float) -> Float[Tensor, " count"]:
    """Return rank^-exponent / sum, float64."""
    weights = torch.arange(1, count + 1, dtype=torch.float64) ** -exponent
    return weights / weights.sum()


def by_topic(count: int, process: GrammarProcess) -> Float[Tensor, "topics count"]:
    """Return probabilities of lemmas by topic, float64; lemma i belongs to topic i mod topics."""
    own = torch.arange(count) % process.topics == torch.arange(process.topics)[:, None]
    weights = zipf(count, process.exponent) * (own.double() * process.strength).exp()
    return weights / weights.sum(1, keepdim=True)


class SentenceSample(NamedTuple):
    """Tokens and the topic of each, int64; the first token is the first of a sentence."""

    tokens: Ids
    topics: Int[Tensor, "batch tokens"]


@final
class Sampler:
    """Draws sequences without a loop over sequences or positions."""

    def __init__(self, process: GrammarProcess, device: torch.device) -> None:
        self._process, self._device = process, device
        self._nouns = _cumulate(by_topic(process.nouns, process), device)
        self._verbs = _cumulate(by_topic(process.verbs, process), device)
        self._names = _cumulate(zipf(process.names, process.exponent)[None], device)
        self._prepositions = _cumulate(zipf(process.prepositions, process.exponent)[None], device)

    def draw(self, draws: Draws, sequences: int, length: int) -> SentenceSample:
        """Draw the first `length` tokens of the process `sequences` times."""
        process = self._process
        shape = sequences, -(-length // 3)  # no sentence is shorter than subject, verb, stop
        draws.compute_ahead(4 * math.prod(shape) + 5 * sequences * length)
        attractors = self._attractors(draws, *shape, most=length)
        transitive = draws.uniform(*shape) < process.transitive
        topic = self._topics(draws, *shape)
        ends = (3 + 2 * attractors + transitive).cumsum(1)
        place = torch.arange(length, device=self._device).expand(sequences, length).contiguous()
        sentence = torch.searchsorted(ends, place, right=True)
        starts = F.pad(ends, (1, 0))[:, :-1]
        inside = place - starts.gather(1, sentence)
        verb = 1 + 2 * attractors.gather(1, sentence)
        topics = topic.gather(1, sentence)
        plural = draws.uniform(sequences, length) < process.plural
        named = draws.uniform(sequences, length) < process.naming
        lemma = draws.uniform(sequences, length)
        beside = (inside == 0) | ((inside == verb + 1) & transitive.gather(1, sentence))  # subject or object
        named &= beside
        agreed = (plural & ~named).gather(1, starts.gather(1, sentence).clamp(max=length - 1))
        nouns = process.first_noun + process.nouns * plural + _index(self._nouns, lemma, topics)
        verbs = process.first_verb + process.verbs * agreed + _index(self._verbs, lemma, topics)
        prepositions = 1 + _index(self._prepositions, lemma, torch.zeros_like(topics))
        tokens = torch.where(beside, nouns, STOP)
        tokens = torch.where(inside < verb, torch.where(inside % 2 == 1, prepositions, nouns), tokens)
        tokens = torch.where(inside == verb, verbs, tokens)
        return SentenceSample(torch.where(named, self._draw_names(draws, named, lemma), tokens), topics)

    def agreement(
        self, draws: Draws, pairs: int, attractors: int
    ) -> tuple[Int[Tensor, "pairs tokens"], Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
        """Draw sentences up to their verb, the verb that agrees and its other form, int64."""
        process = self._process
        topics = draws.below(self._process.topics, pairs, 1)
        plural = torch.arange(pairs, device=self._device)[:, None] % 2
        nouns = process.first_noun + _index(self._nouns, draws.uniform(pairs, 1 + attractors), topics)
        nouns = nouns + process.nouns * torch.cat((plural, (1 - plural).expand(-1, attractors)), 1)
        between = 1 + _index(self._prepositions, draws.uniform(pairs, attractors), topics * 0)
        opening = torch.stack((nouns, F.pad(between, (0, 1))), 2).flatten(1)[:, :-1]
        verbs = process.first_verb + _index(self._verbs, draws.uniform(pairs, 1), topics)
        return opening, (verbs + process.verbs * plural)[:, 0], (verbs + process.verbs * (1 - plural))[:, 0]

    def _attractors(self, draws: Draws, *shape: int, most: int) -> Int[Tensor, "..."]:
        """Draw geometric k, with probability attractor^k (1 - attractor), at most `most`."""
        missed = torch.log1p(-draws.uniform(*shape))
        if self._process.attractor == 0:
            return torch.zeros_like(missed, dtype=torch.int64)
        return (missed / math.log(self._process.attractor)).clamp(max=most).long()

    def _topics(self, draws: Draws, *shape: int) -> Int[Tensor, "batch sentences"]:
        """Draw the topic of each sentence: that of the last sentence that drew one."""
        drew = draws.uniform(*shape) < self._process.switching
        drew[:, 0] = True
        last = torch.where(drew, torch.arange(shape[1], device=self._device), 0).cummax(1).values
        return draws.below(self._process.topics, *shape).gather(1, last)

    def _draw_names(
        self, draws: Draws, named: Bool[Tensor, "batch tokens"], lemma: Float[Tensor, "batch tokens"]
    ) -> Int[Tensor, "batch tokens"]:
        """Draw names, used only if `named`; a repeated name points to an earlier one, down to a new name."""
        process = self._process
        mention = named.cumsum(1) - 1
        shown = mention.clamp(max=process.slots)
        repeated = (draws.uniform(*named.shape) < process.repeating) & (mention > 0)
        back = 1 + (draws.uniform(*named.shape) * shown).long()
        place = torch.arange(named.shape[1], device=self._device).expand_as(named)
        place_of = torch.zeros_like(place).scatter_reduce(1, mention.clamp(min=0), place * named, "amax")
        source = torch.where(repeated & named, place_of.gather(1, (mention - back).clamp(min=0)), place)
        for _ in range(max(1, (named.shape[1] - 1).bit_length())):
            source = source.gather(1, source)
        new = self._process.first_name + _index(self._names, lemma, torch.zeros_like(place))
        return new.gather(1, source)


def _cumulate(rows: Float[Tensor, "rows entries"], device: torch.device) -> Float[Tensor, "rows entries"]:
    """Cumulate rows of probabilities [R, N]; the r-th row goes from r to r + 1, for `_index`."""
    sums = rows.cumsum(1)
    sums[:, -1] = 1.0
    return (sums + torch.arange(len(rows))[:, None]).to(device)


def _index(
    sums: Float[Tensor, "rows entries"], uniform: Float[Tensor, "batch tokens"], row: Int[Tensor, " batch #tokens"]
) -> Int[Tensor, "batch tokens"]:
    """Return the index in its row that a number of [0, 1) falls on."""
    flat = torch.searchsorted(sums.flatten(), (uniform + row).contiguous(), right=True)
    return (flat - row * sums.shape[1]).clamp(max=sums.shape[1] - 1)


class Odds(NamedTuple):
    """Log probabilities of the tokens of sequences: `common` + `lemma`, float64."""

    common: Float[Tensor, "batch tokens"]
    lemma: Float[Tensor, "batch tokens topics"]
    stops: Bool[Tensor, "batch tokens"]
    """True where the token ends a sentence."""
    switching: float

    def optimal(self) -> Float[Tensor, "batch tokens"]:
        """Compute the optimal predictor's nats of each token; infinite if the grammar forbids it."""
        topics = self.lemma.shape[2]
        belief = torch.full_like(self.lemma[:, 0], -math.log(topics))
        totals = []
        for lemma, stop in zip(self.lemma.unbind(1), self.stops.unbind(1), strict=True):
            joint = belief + lemma
            total = joint.logsumexp(1, keepdim=True)
            belief = joint - total
            mixed = ((1 - self.switching) * belief.exp() + self.switching / topics).log()
            belief = torch.where(stop[:, None], mixed, belief)
            totals.append(total)
        return -(self.common + torch.cat(totals, 1))

    def informed_loss(self, topics: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens"]:
        """Compute nats of each token for a predictor that knows the topics."""
        return -(self.common + self.lemma.gather(2, topics[..., None])[..., 0])


def odds(tokens: Ids, process: GrammarProcess) -> Odds:
    """Compute the log probabilities of sequences that begin with a sentence, on the CPU."""
    kinds = process.token_classes(tokens)
    stop, preposition, noun, verb, name = (kinds == kind for kind in range(5))
    first, beside_verb = _after(stop, start=True), _after(verb)
    of_verb = _after(noun | name) & _after(beside_verb)
    before_verb = (_after(noun | name) & ~_after(beside_verb)).double()  # a bool times a float would be float32

    plural = noun & (tokens >= process.first_noun + process.nouns)
    plural |= verb & (tokens >= process.first_verb + process.verbs)
    place = torch.arange(tokens.shape[1]).expand_as(tokens)
    subject = torch.where(first, place, 0).cummax(1).values
    agrees = plural == plural.gather(1, subject)
    number = (1 - process.plural) + (2 * process.plural - 1) * plural.double()

    entity = first + process.transitive * beside_verb.double()
    likely = torch.where(stop, of_verb + (1 - process.transitive) * beside_verb.double(), 0.0)
    likely = torch.where(noun, (entity * (1 - process.naming) + _after(preposition)) * number, likely)
    likely = torch.where(name, entity * process.naming * _naming(tokens, name, process), likely)
    kind = zipf(process.prepositions, process.exponent)[(tokens - 1).clamp(0, process.prepositions - 1)]
    likely = torch.where(preposition, before_verb * process.attractor * kind, likely)
    likely = torch.where(verb, before_verb * agrees * (1 - process.attractor), likely)

    nouns, verbs = by_topic(process.nouns, process).log().T, by_topic(process.verbs, process).log().T
    lemma = torch.where(noun[..., None], nouns[(tokens - process.first_noun) % process.nouns], 0.0)
    lemma = torch.where(verb[..., None], verbs[(tokens - process.first_verb) % process.verbs], lemma)
    return Odds(likely.log(), lemma, stop, process.switching)


def unigrams(process: GrammarProcess, length: int) -> Float[Tensor, " vocabulary"]:
    """Return the expected share of each token among the first `length` of a sequence, float64."""
    first, before_verb, between, after_verb, end = 1.0, 0.0, 0.0, 0.0, 0.0
    seen = torch.zeros(5, dtype=torch.float64)
    for _ in range(length):
        here = (first, before_verb, between, after_verb, end)
        seen += torch.tensor(here, dtype=torch.float64) / length
        first = here[4] + (1 - process.transitive) * here[3]
        before_verb = here[0] + here[2]
        between, after_verb = process.attractor * here[1], (1 - process.attractor) * here[1]
        end = process.transitive * here[3]
    first, before_verb, between, after_verb, end = seen.tolist()
    entities = first + process.transitive * after_verb
    nouns = (entities * (1 - process.naming) + between) * by_topic(process.nouns, process).mean(0)
    verbs = before_verb * (1 - process.attractor) * by_topic(process.verbs, process).mean(0)
    plural_verb = (1 - process.naming) * process.plural
    parts = (
        torch.tensor([end + (1 - process.transitive) * after_verb], dtype=torch.float64),
        before_verb * process.attractor * zipf(process.prepositions, process.exponent),
        nouns * (1 - process.plural),
        nouns * process.plural,
        verbs * (1 - plural_verb),
        verbs * plural_verb,
        entities * process.naming * zipf(process.names, process.exponent),
    )
    return torch.cat(parts)


def _after(which: Bool[Tensor, "batch tokens"], *, start: bool = False) -> Bool[Tensor, "batch tokens"]:
    """Return True if the token before is one of `which`; `start` is the value of the first."""
    return F.pad(which[:, :-1], (1, 0), value=start)


def _naming(tokens: Ids, name: Bool[Tensor, "batch tokens"], process: GrammarProcess) -> Float[Tensor, "batch tokens"]:
    """Return the probability of each name, given the last mentions."""
    new = zipf(process.names, process.exponent)[(tokens - process.first_name).clamp(min=0)]
    mention = name.cumsum(1) - 1
    mentioned = torch.full_like(tokens, -1).scatter_reduce(
        1, mention.clamp(min=0), torch.where(name, tokens, -1), "amax"
    )
    same = torch.zeros_like(new)
    for back in range(1, min(process.slots, tokens.shape[1]) + 1):
        earlier = mentioned.gather(1, (mention - back).clamp(min=0))
        same += (earlier == tokens) & (mention >= back)
    shown = mention.clamp(min=1, max=process.slots)
    again = process.repeating * same / shown + (1 - process.repeating) * new
    return torch.where(mention > 0, again, new)
