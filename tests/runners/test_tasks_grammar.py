"""The grammar: its probabilities against a process written down state by state, and its sampler against both."""

import math
from collections import Counter, defaultdict
from itertools import product

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from ablate.training.tasks.counter_rng import CPU, Draws
from ablate.training.tasks.synthetic.grammar import Grammar
from ablate.training.tasks.synthetic.grammar_sentences import Sampler, odds, unigrams

TINY = Grammar(
    context=12, batch=4, prepositions=1, nouns=2, verbs=2, names=2, exponent=0.7, topics=2, strength=1.3,
    switching=0.35, attractor=0.3, transitive=0.6, naming=0.45, repeating=0.55, slots=2, plural=0.4,
    validation_windows=20, attractors=(0, 1, 2), agreement_pairs=10,
)  # fmt: skip
VOCABULARY, LENGTH = 12, 5
STOP, OF, NOUNS, VERBS, NAMES = 0, 1, ((2, 3), (4, 5)), ((6, 7), (8, 9)), (10, 11)

State = tuple[str, int, int, tuple[int, ...]]
"""The next token class, the topic, the subject's number, the names so far, latest last."""


def shares(topic: int | None) -> list[float]:
    weights = [rank**-0.7 * math.exp(1.3 * (rank - 1 == topic)) for rank in (1, 2)]
    return [weight / sum(weights) for weight in weights]


def nouns(topic: int) -> list[tuple[int, int, float]]:
    return [(NOUNS[n][i], n, p * share) for n, p in enumerate((0.6, 0.4)) for i, share in enumerate(shares(topic))]


def moves(state: State) -> list[tuple[int, float, State]]:
    """Every token that may come next, its probability and the state it leads to; one token may lead to several."""
    place, topic, number, names = state
    if place == "end":
        drawn = [(0.65, topic), (0.175, 0), (0.175, 1)]
        return [(STOP, p, ("subject", new, 0, names)) for p, new in drawn]
    if place == "attractor":
        return [(token, p, ("verb", topic, number, names)) for token, _, p in nouns(topic)]
    if place == "verb":
        of = [(OF, 0.3, ("attractor", topic, number, names))]
        forms = zip(VERBS[number], shares(topic), strict=True)
        return of + [(token, 0.7 * p, ("object", topic, 0, names)) for token, p in forms]
    subject = place == "subject"
    following, weight = ("verb", 1.0) if subject else ("end", 0.6)
    found = [(token, weight * 0.55 * p, (following, topic, n * subject, names)) for token, n, p in nouns(topic)]
    new = 0.45 if names else 1.0
    for name, share in zip(NAMES, shares(None), strict=True):
        found.append((name, weight * 0.45 * new * share, (following, topic, 0, (*names, name))))
    again = weight * 0.45 * 0.55 / max(1, len(names[-2:]))
    found += [(name, again, (following, topic, 0, (*names, name))) for name in names[-2:]]
    if not subject:
        found += [(token, 0.4 * p, after) for token, p, after in moves(("end", topic, 0, names))]
    return found


START = {("subject", 0, 0, ()): 0.5, ("subject", 1, 0, ()): 0.5}


def enumerate_sentences() -> dict[tuple[int, ...], dict[tuple[int, ...], float]]:
    """The probability of every possible sequence up to `LENGTH` tokens, by the topics of its tokens."""
    found: dict[tuple[int, ...], dict[tuple[int, ...], float]] = defaultdict(lambda: defaultdict(float))
    waiting = [((), (), p, state) for state, p in START.items()]
    while waiting:
        tokens, topics, p, state = waiting.pop()
        if tokens:
            found[tokens][topics] += p
        if len(tokens) < LENGTH:
            waiting += [((*tokens, token), (*topics, state[1]), p * step, after) for token, step, after in moves(state)]
    return found


BY_TOPICS = enumerate_sentences()
JOINT = {(): 1.0, **{tokens: sum(by.values()) for tokens, by in BY_TOPICS.items()}}


def nats(tokens: Tensor) -> Tensor:
    return odds(tokens, TINY).optimal()


def draw(length: int, count: int) -> tuple[Tensor, Tensor]:
    return Sampler(TINY, CPU).draw(Draws(0, "test", length), count, length)


def test_the_optimal_prediction_is_the_enumerated_conditional_at_every_position() -> None:
    assert TINY.inputs.vocabulary == VOCABULARY
    everything = torch.tensor(list(product(range(VOCABULARY), repeat=4)))
    probabilities = (-nats(everything).sum(1)).exp()
    assert float(probabilities.sum()) == pytest.approx(1, abs=1e-12)
    assert {tuple(row) for row in everything[probabilities > 0].tolist()} == {row for row in JOINT if len(row) == 4}
    sequences = [row for row in JOINT if len(row) == LENGTH]
    assert sum(JOINT[row] for row in sequences) == pytest.approx(1, abs=1e-12)
    found = (-nats(torch.tensor(sequences))).exp()
    expected = [[JOINT[row[:end]] / JOINT[row[: end - 1]] for end in range(1, LENGTH + 1)] for row in sequences]
    torch.testing.assert_close(found.double(), torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=0)


def test_the_prediction_that_is_told_the_topic_is_the_enumerated_conditional_too() -> None:
    full = [(row, topics) for row, by in BY_TOPICS.items() if len(row) == LENGTH for topics in by]
    tokens, topics = (torch.tensor([pair[i] for pair in full]) for i in (0, 1))
    given = odds(tokens, TINY).informed_loss(topics).sum(1)
    for (row, by), cost in zip(full, given.tolist(), strict=True):
        switches = [
            (0.65 + 0.175 if a == b else 0.175) for token, a, b in zip(row, by, by[1:], strict=False) if not token
        ]
        assert math.exp(-cost) * 0.5 * math.prod(switches) == pytest.approx(BY_TOPICS[row][by], rel=1e-9)


def test_the_sampler_draws_every_sequence_as_often_as_it_should() -> None:
    count = 200_000
    seen = Counter(map(tuple, torch.cat(draw(LENGTH, count), 1).tolist()))
    expected = {(*row, *by): p * count for row in BY_TOPICS if len(row) == LENGTH for by, p in BY_TOPICS[row].items()}
    assert seen.keys() <= expected.keys()
    large = [key for key, value in expected.items() if value >= 8]
    rest, seen_rest = (count - sum(counts[key] for key in large) for counts in (expected, seen))
    chi_square = sum((seen[key] - expected[key]) ** 2 / expected[key] for key in large) + (rest - seen_rest) ** 2 / rest
    assert len(large) > 500
    assert abs(chi_square - len(large)) < 4 * math.sqrt(2 * len(large))


def test_long_sequences_cost_what_the_process_says() -> None:
    """Names of long ago, topics that switch: forward over all states, one token after another."""
    tokens = draw(60, 6)[0]
    for row, found in zip(tokens.tolist(), nats(tokens).tolist(), strict=True):
        belief = dict(START)
        for token, cost in zip(row, found, strict=True):
            after: dict[State, float] = defaultdict(float)
            for state, p in belief.items():
                for move, step, (place, topic, number, names) in moves(state):
                    if move == token:
                        after[place, topic, number, names[-2:]] += p * step
            total = sum(after.values())
            assert math.exp(-cost) == pytest.approx(total, rel=1e-9)
            belief = {state: p / total for state, p in after.items()}


def test_the_frequencies_of_tokens_are_the_enumerated_ones() -> None:
    counts = [0.0] * VOCABULARY
    for row, p in JOINT.items():
        if len(row) == LENGTH:
            for token in row:
                counts[token] += p / LENGTH
    assert unigrams(TINY, LENGTH).tolist() == pytest.approx(counts, abs=1e-12)
    entropy = -sum(share * math.log(share) for share in counts)
    assert TINY.changed(context=LENGTH).open().constant_loss == pytest.approx(entropy)


def knows_the_grammar(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
    """The optimal predictor as a model: the log probability of every token at every position."""
    assert (inputs[:, 0] == STOP).all()
    said = torch.empty(*inputs.shape, VOCABULARY)
    for place, token in product(range(inputs.shape[1]), range(VOCABULARY)):
        guessed = torch.cat((inputs[:, 1 : place + 1], torch.full((len(inputs), 1), token)), 1)
        said[:, place, token] = -nats(guessed)[:, -1]
    return said


def test_a_model_that_knows_the_grammar_is_no_bit_above_the_optimum_and_always_agrees() -> None:
    found = {(m.name, m.point.get("attractors")): m for m in TINY.open().evaluate(knows_the_grammar)}
    above = found["bits_above_optimum", None]
    assert (above.value, above.se_items, above.items) == (pytest.approx(0, abs=1e-6), pytest.approx(0, abs=1e-6), 20)
    assert found["informed.validation_loss", None].value < found["optimal.validation_loss", None].value
    assert [found["agreement_accuracy", count].value for count in (0, 1, 2)] == [1, 1, 1]


def test_agreement_is_with_the_subject_and_not_with_the_nearest_noun() -> None:
    def plural(token: Tensor) -> Tensor:
        return (token >= 4) & (token < 6)

    def says(which: Tensor, inputs: Tensor) -> Tensor:
        said = torch.zeros(*inputs.shape, VOCABULARY)
        said[:, -1, 6:8], said[:, -1, 8:10] = (~which).float()[:, None], which.float()[:, None]
        return said

    def measure(predict: object) -> list[float]:
        found = TINY.open().evaluate(predict)
        return [m.value for m in found if m.name == "agreement_accuracy"]

    assert measure(lambda inputs: says(plural(inputs[:, 1]), inputs)) == [1, 1, 1]
    assert measure(lambda inputs: says(plural(inputs[:, -1]), inputs)) == [1, 0, 0]
    assert measure(lambda inputs: says(torch.ones(len(inputs), dtype=torch.bool), inputs)) == [0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"topics": 3}, "3 topics are more than the 2 nouns, .* raise nouns"),
        ({"topics": 3, "nouns": 3}, "3 topics are more than the 2 verbs, .* raise verbs"),
        ({"attractor": 0.0}, r"cannot occur with attractor=0"),
        ({"plural": 1.0}, r"attractors need noun subjects of both numbers"),
        ({"naming": 1.0}, r"attractors need noun subjects of both numbers"),
    ],
)
def test_a_grammar_without_meaning_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Grammar.model_validate({**TINY.data(), **fields})
