"""The dashboard's view of an operator: its words, its numbers with spans for sliders, its weights and scores."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TypeVar

from pydantic import ValidationError

from ablate.grid.errors import AblateError, SpecError
from ablate.grid.operator_view import (
    ListedOperator,
    OperatorArgument,
    OperatorName,
    OperatorNumber,
    OperatorSetting,
    OperatorView,
    Profile,
    ScoreCurve,
)
from ablate.grid.suggestions import suggest_name
from ablate.grid.validation import spec_error
from ablate.runners.catalogue.explain import (
    SOFTMAX as PLAIN,
    Argument,
    arguments,
    describe_parts,
    different_stages,
    find_named,
    find_pitfalls,
    how_to_write,
)
from ablate.runners.catalogue.stage_words import number_rows, option_words, options
from ablate.runners.catalogue.weight_profile import SETTINGS, equation, head_words, heads_needed, profiles
from ablate.variants import Operator
from ablate.variants.links import LINKS
from ablate.variants.number import KeyVector, Matrix, Number
from ablate.variants.papers.catalogue import PAPERS, Limit, NamedOperator, catalogue

MOST_LOGITS = 64
LARGEST_LOGIT = 1e4
_LARGEST_ARGUMENT = 4096
"""Largest count of channels or keys in an argument. Beyond it the weights are the same, but memory is not."""
_AFTER = ("readout", "head_norm", "output_gate")
"""Stages after the weights."""
_EXACT = 15
"""Decimals of the weights."""
_WIDEST_LIMIT = 1e3
"""Largest value of a number on a slider."""
T = TypeVar("T")


def list_operators() -> list[ListedOperator]:
    """List all named operators, in the order of the papers."""
    listed = []
    for each in catalogue().values():
        label = each.make().label
        shown = label if label.lower() == each.name else f"{label} ({each.name})"
        listed.append(ListedOperator(each.name, shown, PAPERS[each.paper]))
    return listed


def make_operator(name: OperatorName, given: Mapping[str, str]) -> Operator:
    """Make an operator from its name and arguments, or from a whole spec.

    Raises NotFoundError if no operator has that name. Raises SpecError if the spec or an argument is invalid.
    """
    if not isinstance(name, str):
        if given:
            raise SpecError(f"an operator of a grid is a whole spec and takes no arguments; got {', '.join(given)}")
        try:
            return Operator.model_validate(dict(name))
        except ValidationError as error:
            raise SpecError(
                f"{spec_error(error, 'operator')}; if a spec file of yours defines it, open the dashboard with "
                "`ablate dash --spec FILE`"
            ) from error
    known = find_named(name)
    taken = {each.name: each for each in arguments(known)}
    values = {argument: _parse_argument(known, taken, argument, text) for argument, text in given.items()}
    return _as_spec_error(lambda: known.make(**values))


def _parse_argument(known: NamedOperator, taken: Mapping[str, Argument], name: str, text: str) -> object:
    if name not in taken:
        raise SpecError(
            f"{known.name} has no argument {name!r}; it has {', '.join(taken)}{suggest_name(name, [*taken])}"
        )
    argument = taken[name]
    if argument.values:
        return next((value for value in (*argument.values, argument.default) if str(value) == text), text)
    kind = type(argument.default)
    if kind is bool or kind not in (int, float):
        raise SpecError(f"{name} of {known.name} cannot be chosen here; write it in a spec file")
    with suppress(ValueError):
        value = kind(text)
        if abs(value) <= _LARGEST_ARGUMENT:
            return value
    words = f"a whole number up to {_LARGEST_ARGUMENT:,}" if kind is int else "a number"
    raise SpecError(f"{name} of {known.name} is {words}; got {text!r}")


def _as_spec_error(make: Callable[[], T]) -> T:
    try:
        return make()
    except AblateError:
        raise
    except ValidationError as error:
        raise spec_error(error, "operator") from error
    except (ValueError, RuntimeError) as error:  # the latter of torch, where sizes do not fit
        raise SpecError(f"it cannot be drawn so: {str(error).strip().splitlines()[0]}") from error


def describe_operator(name: OperatorName, given: Mapping[str, str]) -> OperatorView:
    """Describe an operator. Raises as `make_operator`."""
    operator = make_operator(name, given)
    known = find_named(name) if isinstance(name, str) else None
    parts = different_stages(operator) or {name: getattr(operator, name) for name in PLAIN}
    rows = [row for stage, choice in parts.items() for row in number_rows(choice, f"{stage}.")]
    broken = [f"It does not keep the law {law}: {reason}." for law, reason in operator.breaks.items()]
    ground = "ground state" if operator.normaliser.label == "ground" else "sink"
    return OperatorView(
        label=operator.label,
        line=known.line if known else "As it stands in a grid of this campaign.",
        paper=PAPERS[known.paper] if known else "",
        use=how_to_write(known) if known else "",
        equation=equation(),
        parts=describe_parts(parts),
        numbers=tuple(
            OperatorNumber(
                row.number, row.spec.init, row.start, row.varies, row.range, row.what, span(row.number, row.spec)
            )
            for row in rows
        ),
        arguments=tuple(filter(None, map(_selectable, arguments(known)))) if known else (),
        options={
            name: option_words(value) for stage, part in parts.items() for name, value in options(part, f"{stage}.")
        },
        settings=_settings(known, operator),
        notes=tuple(dict.fromkeys((*find_pitfalls(known, parts), *broken))),
        apart=ground if operator.normaliser.has_ground else "",
        unseen=_hidden_effects(operator),
    )


def _selectable(argument: Argument) -> OperatorArgument | None:
    """Return an argument with few values, or a count; else None."""
    if argument.values:
        values = dict.fromkeys(map(str, (argument.default, *argument.values)))
        return OperatorArgument(argument.name, str(argument.default), tuple(values))
    is_count = isinstance(argument.default, int) and not isinstance(argument.default, bool)
    return OperatorArgument(argument.name, str(argument.default), ()) if is_count else None


def _settings(known: NamedOperator | None, operator: Operator) -> tuple[OperatorSetting, ...]:
    """Return settings that show the operator, its limits, and the identities of its score."""
    settings = []
    if known and known.name in SETTINGS:
        drawn = SETTINGS[known.name]
        arguments = {name: str(value) for name, value in drawn.arguments.items()}
        settings.append(OperatorSetting("Where it differs from softmax plainly", drawn.numbers, arguments))
    for limit in known.limits if known else ():
        where = "" if limit.where == "anywhere" else f", for {limit.where}"
        words = f"{limit.words}: {limit.to().label}, outputs within {limit.within:g}{where}"
        settings.append(OperatorSetting(words, limit.numbers if _can_be_set(limit, operator) else {}, {}))
    for each in operator.score.identities:
        values = ", ".join(f"{name} = {value:g}" for name, value in each.numbers.items())
        words = f"Score {each.to!r}, within a relative error of {each.within:g}: {values}"
        settings.append(OperatorSetting(words, {}, {}))
    return tuple(settings)


def _can_be_set(limit: Limit, operator: Operator) -> bool:
    """Return True if sliders alone reach a limit."""
    own = operator.numbers()
    if limit.where != "anywhere" or limit.fields:
        return False
    return all(span(name, own[name]) and abs(value) <= _WIDEST_LIMIT for name, value in limit.numbers.items())


def _hidden_effects(operator: Operator) -> str:
    """Describe the effects that the weights of one row do not show."""
    sentences = []
    if operator.product.label != "dot":
        sentences.append(
            "Its product is not q . k: queries and keys are made so that q . k / sqrt(d) is the row, and it computes "
            "its own weights from them"
        )
    changed = [stage for stage in _AFTER if stage in different_stages(operator)]
    if changed:
        sentences.append(f"it also changes {' and '.join(changed).replace('_', ' ')}, which comes after the weights")
    text = "; ".join(sentences)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def span(name: str, number: Number) -> tuple[float, float, float] | None:
    """Return least, greatest and step of a slider, or None for a matrix or a number that does not act on weights."""
    stage = name.partition(".")[0]
    silent = stage in _AFTER or (stage == "extra" and not isinstance(number, KeyVector))
    if silent or isinstance(number, Matrix):
        return None
    link = LINKS[number.link]
    low = link.low if math.isfinite(link.low) else min(-5.0, number.init - 5)
    farther = 4 * number.init if math.isfinite(link.low) else number.init + 5
    high = link.high if math.isfinite(link.high) else max(5.0, farther)
    step = 0.01 if high - low <= 2 else 0.05
    low = low if link.holds(low, trained=False) else low + step
    high = high if link.holds(high, trained=False) else high - step
    return low, high, step


def _check_numbers(operator: Operator, numbers: Mapping[str, float]) -> None:
    own = operator.numbers()
    for name, value in numbers.items():
        if name not in own:
            known = f"it has {', '.join(own)}{suggest_name(name, list(own))}" if own else "it has none"
            raise SpecError(f"{operator.label} has no number {name!r}; {known}")
        if span(name, own[name]) is None:
            raise SpecError(f"{name} of {operator.label} is no single number that acts on the weights; leave it out")
        link = LINKS[own[name].link]
        if not link.holds(value, trained=False):  # a trained one approaches its border, where its limits are
            raise SpecError(f"{name} of {operator.label} is in {link.words(trained=False)}; got {value:g}")


def weights(operator: Operator, numbers: Mapping[str, float], logits: Sequence[float]) -> list[Profile]:
    """Compute the weights of the last query over keys with these logits. Other numbers have their start values.

    Raises SpecError if a number or the row is invalid, or the operator cannot have so few keys.
    """
    _check_numbers(operator, numbers)
    if not 2 <= len(logits) <= MOST_LOGITS:
        raise SpecError(f"a row has 2 to {MOST_LOGITS} logits; got {len(logits)}")
    for z in logits:
        if not abs(z) <= LARGEST_LOGIT:
            raise SpecError(f"a logit is a number from {-LARGEST_LOGIT:g} to {LARGEST_LOGIT:g}; got {z:g}")
    rows = _as_spec_error(lambda: profiles(operator, numbers, len(logits) - 1, logits, digits=_EXACT))
    if any(not math.isfinite(weight) for row in rows for weight in row.keys):
        raise SpecError(f"{operator.label} has no finite weights here; move its numbers back")
    return rows


def scores(operator: Operator, numbers: Mapping[str, float], logits: Sequence[float]) -> list[ScoreCurve]:
    """Compute the score at each of these logits, for every group of heads. Raises as `weights`."""
    _check_numbers(operator, numbers)
    heads = heads_needed(operator)
    by_head = [operator.score.of_head(head, heads) for head in range(heads)]
    curves: list[ScoreCurve] = []
    at = 0
    for (score, prefix), group in groupby(by_head):
        size = len(list(group))
        own = {field: numbers.get(f"score.{prefix}{field}", number.init) for field, number in score.numbers().items()}
        values = tuple(_finite(lambda z=z, own=own, score=score: score.oracle(z, **own)) for z in logits)  # type: ignore[misc]
        curves.append(ScoreCurve(head_words(at, size, heads), values))
        at += size
    return curves


def _finite(ask: Callable[[], float]) -> float | None:
    try:
        value = float(ask())
    except OverflowError:
        return None
    return value if math.isfinite(value) else None
