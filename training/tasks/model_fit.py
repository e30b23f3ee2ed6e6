"""Checks that a model and its operators can learn a task."""

from ablate.grid.errors import SpecError
from ablate.training.tasks.task import Task
from ablate.variants import Backbone, Operator, Scalars
from ablate.variants.model.foreign import AnyBackbone
from ablate.variants.paths.case import Case
from ablate.variants.paths.choose import PathName, choose, devices_of


def require_model_fits(task: Task, model: AnyBackbone, length: int) -> None:
    """Raise ValueError unless positions, direction and inputs of `model` fit `task`, of up to `length` tokens."""
    table = model.positions.table
    if table and length + model.sink_tokens > table:
        sinks = f", {model.sink_tokens} of them for sink tokens" if model.sink_tokens else ""
        raise ValueError(
            f"the task's sequences have up to {length} tokens and the model has {table} positions{sinks}; raise "
            "model.positions.count or shorten the task"
        )
    if task.sees_ahead and model.causal:
        raise ValueError(
            "model.causal=True does not see both sides of what the task hides and asks for; use model.causal=False"
        )
    if not task.sees_ahead and not model.causal:
        raise ValueError("model.causal=False sees what comes next, which the task predicts; use model.causal=True")
    if not isinstance(model, Backbone) or not isinstance(task.inputs, Scalars):
        return
    if not model.tied:
        raise ValueError("model.tied=False has no effect on a task without token embeddings; leave it out")
    if model.read_out != "linear":
        raise ValueError(f"model.read_out={model.read_out!r} predicts tokens, and the task has none; use 'linear'")


def require_operator_fits(task: Task, model: Backbone, operator: Operator, length: int, path: PathName) -> None:
    """Raise ValueError unless `operator` works in `model`, at `length` tokens, on `path`, and hides the targets."""
    where, tokens = f"operator {operator.label!r} in {model.label}", length + model.sink_tokens
    case = Case(tokens, tokens, devices_of(path)[0], channels=model.head_width)
    try:
        model.check(operator)
        operator.check_length(tokens)
        choose(operator, case._replace(biased=model.positions.adds_bias, dropout=model.attention_dropout > 0), path)
    except (ValueError, SpecError) as error:
        raise ValueError(f"{where}: {error}") from error
    if task.sees_ahead:
        return
    what = f"{where}: the task predicts what comes next"
    for stage in operator.stages().values():
        seen = stage.breaks.get("causality")
        if seen is None:
            continue
        ahead = operator.visible.ahead - model.sink_tokens if stage is operator.visible else None
        if ahead is None:
            raise ValueError(f"{what}, and {seen}")
        if ahead > task.unscored:
            raise ValueError(f"{what} from position {task.unscored} on, and {seen}; leave {ahead} out of the loss")
