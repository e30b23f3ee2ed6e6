"""Oracle of the grammar: exact probabilities of sentences, token by token.

    p(x_t | x_<t) = c_t sum_z b_t(z) e_z(x_t)             the optimal predictor
    b_t+1(z)      = b_t(z) e_z(x_t) / sum,    after a stop (1 - s) b + s / K

The factor e depends on the topic, c does not. b is the belief about the topic (forward filtering).

Here s is the probability
of a new topic and K the number of topics. The earlier tokens determine the rest of the state. No predictor that sees
the same tokens has a lower expected loss. A predictor that knows the topic has p = c_t e_z(x_t).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from runners.tasks.synthetic.grammar_sentences import GrammarProcess, by_topic, zipf


class Odds(NamedTuple):
    """Log probabilities of the tokens of sequences: `common` [B, T] + `lemma` [B, T, topics], float64."""

    common: Tensor
    lemma: Tensor
    stops: Tensor
    """Boolean [B, T]: the token ends a sentence."""
    switching: float

    def optimal(self) -> Tensor:
        """Compute the optimal predictor's nats of each token [B, T]; infinite if the grammar forbids it."""
        topics = self.lemma.shape[2]
        belief = torch.full_like(self.lemma[:, 0], -math.log(topics))
        found = []
        for lemma, stop in zip(self.lemma.unbind(1), self.stops.unbind(1), strict=True):
            joint = belief + lemma
            total = joint.logsumexp(1, keepdim=True)
            belief = joint - total
            mixed = ((1 - self.switching) * belief.exp() + self.switching / topics).log()
            belief = torch.where(stop[:, None], mixed, belief)
            found.append(total)
        return -(self.common + torch.cat(found, 1))

    def informed_loss(self, topics: Tensor) -> Tensor:
        """Compute nats of each token for a predictor that knows the topics [B, T]."""
        return -(self.common + self.lemma.gather(2, topics[..., None])[..., 0])


def odds(tokens: Tensor, process: GrammarProcess) -> Odds:
    """Compute the log probabilities of sequences [B, T] that begin with a sentence, on the CPU."""
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


def unigrams(process: GrammarProcess, length: int) -> Tensor:
    """How often each token is expected among the first `length` of a sequence, float64 [vocabulary], sums to 1."""
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


def _after(which: Tensor, *, start: bool = False) -> Tensor:
    """Where the token before is one of `which`; `start` says so of the very first."""
    return F.pad(which[:, :-1], (1, 0), value=start)


def _naming(tokens: Tensor, name: Tensor, process: GrammarProcess) -> Tensor:
    """The probability of a name [B, T] where there is one, given the last mentions."""
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
