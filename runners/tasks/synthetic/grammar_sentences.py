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
from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.nn import functional as F

from runners.tasks.counter_rng import Draws


class GrammarWords(NamedTuple):
    """Sizes of the classes of words.

    Token ids are in this order: stop, prepositions, singular nouns, plural nouns, singular verbs, plural verbs, names.
    """

    prepositions: int
    nouns: int
    verbs: int
    names: int

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        return 1 + self.prepositions + 2 * (self.nouns + self.verbs) + self.names

    @property
    def noun(self) -> int:
        """First noun; plurals begin `nouns` later."""
        return 1 + self.prepositions

    @property
    def verb(self) -> int:
        """First verb; plurals begin `verbs` later."""
        return self.noun + 2 * self.nouns

    @property
    def name(self) -> int:
        """First name."""
        return self.verb + 2 * self.verbs


STOP = 0


class Chances(NamedTuple):
    """Probabilities of the process."""

    exponent: float
    topics: int
    strength: float
    """Nats by which a topic raises its own lemmas."""
    switching: float
    attractor: float
    """Probability of each further preposition and noun before the verb."""
    transitive: float
    """Probability of an object."""
    naming: float
    """Probability of a name as subject or object."""
    repeating: float
    slots: int
    plural: float
    """Probability of the plural, for each noun."""


def zipf(count: int, exponent: float) -> Tensor:
    """rank^-exponent / sum, float64 [count]."""
    weights = torch.arange(1, count + 1, dtype=torch.float64) ** -exponent
    return weights / weights.sum()


def by_topic(count: int, chances: Chances) -> Tensor:
    """Return probabilities of lemmas by topic, float64 [topics, count]; lemma i belongs to topic i mod topics."""
    own = torch.arange(count) % chances.topics == torch.arange(chances.topics)[:, None]
    weights = zipf(count, chances.exponent) * (own.double() * chances.strength).exp()
    return weights / weights.sum(1, keepdim=True)


class SentenceSample(NamedTuple):
    """Tokens [B, T] and the topic of each [B, T], int64; the first token is the first of a sentence."""

    tokens: Tensor
    topics: Tensor


@final
class Sampler:
    """Draws sequences without a loop over sequences or positions."""

    def __init__(self, words: GrammarWords, chances: Chances, device: torch.device) -> None:
        self._words, self._chances, self._device = words, chances, device
        self._nouns = _cumulate(by_topic(words.nouns, chances), device)
        self._verbs = _cumulate(by_topic(words.verbs, chances), device)
        self._names = _cumulate(zipf(words.names, chances.exponent)[None], device)
        self._prepositions = _cumulate(zipf(words.prepositions, chances.exponent)[None], device)

    def draw(self, draws: Draws, sequences: int, length: int) -> SentenceSample:
        """`sequences` times the first `length` tokens of the process."""
        chances, words = self._chances, self._words
        shape = sequences, -(-length // 3)  # no sentence is shorter than subject, verb, stop
        attractors = self._attractors(draws, *shape, most=length)
        transitive = draws.uniform(*shape) < chances.transitive
        topic = self._topics(draws, *shape)
        ends = (3 + 2 * attractors + transitive).cumsum(1)
        place = torch.arange(length, device=self._device).expand(sequences, length).contiguous()
        sentence = torch.searchsorted(ends, place, right=True)
        starts = F.pad(ends, (1, 0))[:, :-1]
        inside = place - starts.gather(1, sentence)
        verb = 1 + 2 * attractors.gather(1, sentence)
        topics = topic.gather(1, sentence)
        plural = draws.uniform(sequences, length) < chances.plural
        named = draws.uniform(sequences, length) < chances.naming
        lemma = draws.uniform(sequences, length)
        beside = (inside == 0) | ((inside == verb + 1) & transitive.gather(1, sentence))  # subject or object
        named &= beside
        agreed = (plural & ~named).gather(1, starts.gather(1, sentence).clamp(max=length - 1))
        nouns = words.noun + words.nouns * plural + _index(self._nouns, lemma, topics)
        verbs = words.verb + words.verbs * agreed + _index(self._verbs, lemma, topics)
        prepositions = 1 + _index(self._prepositions, lemma, torch.zeros_like(topics))
        tokens = torch.where(beside, nouns, STOP)
        tokens = torch.where(inside < verb, torch.where(inside % 2 == 1, prepositions, nouns), tokens)
        tokens = torch.where(inside == verb, verbs, tokens)
        return SentenceSample(torch.where(named, self._draw_names(draws, named, lemma), tokens), topics)

    def agreement(self, draws: Draws, pairs: int, attractors: int) -> tuple[Tensor, Tensor, Tensor]:
        """A sentence up to its verb [B, 1 + 2 attractors], the verb of its lemma that agrees and the one that does not.

        Every noun in between has the other number than the subject; half of the subjects are plural. int64 [B].
        """
        words = self._words
        topics = draws.below(self._chances.topics, pairs, 1)
        plural = torch.arange(pairs, device=self._device)[:, None] % 2
        nouns = words.noun + _index(self._nouns, draws.uniform(pairs, 1 + attractors), topics)
        nouns = nouns + words.nouns * torch.cat((plural, (1 - plural).expand(-1, attractors)), 1)
        between = 1 + _index(self._prepositions, draws.uniform(pairs, attractors), topics * 0)
        opening = torch.stack((nouns, F.pad(between, (0, 1))), 2).flatten(1)[:, :-1]
        verbs = words.verb + _index(self._verbs, draws.uniform(pairs, 1), topics)
        return opening, (verbs + words.verbs * plural)[:, 0], (verbs + words.verbs * (1 - plural))[:, 0]

    def _attractors(self, draws: Draws, *shape: int, most: int) -> Tensor:
        """Draw geometric k, with probability attractor^k (1 - attractor), at most `most`."""
        missed = torch.log1p(-draws.uniform(*shape))
        if self._chances.attractor == 0:
            return torch.zeros_like(missed, dtype=torch.int64)
        return (missed / math.log(self._chances.attractor)).clamp(max=most).long()

    def _topics(self, draws: Draws, *shape: int) -> Tensor:
        """Draw the topic of each sentence: that of the last sentence that drew one."""
        drew = draws.uniform(*shape) < self._chances.switching
        drew[:, 0] = True
        last = torch.where(drew, torch.arange(shape[1], device=self._device), 0).cummax(1).values
        return draws.below(self._chances.topics, *shape).gather(1, last)

    def _draw_names(self, draws: Draws, named: Tensor, lemma: Tensor) -> Tensor:
        """Draw names [B, T], used only if `named`; a repeated name points to an earlier one, down to a new name."""
        chances = self._chances
        mention = named.cumsum(1) - 1
        shown = mention.clamp(max=chances.slots)
        repeated = (draws.uniform(*named.shape) < chances.repeating) & (mention > 0)
        back = 1 + (draws.uniform(*named.shape) * shown).long()
        place = torch.arange(named.shape[1], device=self._device).expand_as(named)
        place_of = torch.zeros_like(place).scatter_reduce(1, mention.clamp(min=0), place * named, "amax")
        source = torch.where(repeated & named, place_of.gather(1, (mention - back).clamp(min=0)), place)
        for _ in range(max(1, (named.shape[1] - 1).bit_length())):
            source = source.gather(1, source)
        new = self._words.name + _index(self._names, lemma, torch.zeros_like(place))
        return new.gather(1, source)


def _cumulate(rows: Tensor, device: torch.device) -> Tensor:
    """Cumulate rows of probabilities [R, N]; the r-th row goes from r to r + 1, for `_index`."""
    sums = rows.cumsum(1)
    sums[:, -1] = 1.0
    return (sums + torch.arange(len(rows))[:, None]).to(device)


def _index(sums: Tensor, uniform: Tensor, row: Tensor) -> Tensor:
    """Return the index in its row that a number of [0, 1) falls on."""
    found = torch.searchsorted(sums.flatten(), (uniform + row).contiguous(), right=True)
    return (found - row * sums.shape[1]).clamp(max=sums.shape[1] - 1)
