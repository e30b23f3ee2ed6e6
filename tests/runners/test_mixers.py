"""Mixers and foreign backbones: planned, trained, resumed, judged; what they cannot do is one sentence."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal

import pytest
import torch
from batch_in_parts import GENTLE, ROUNDINGS, apart, split
from pydantic import ValidationError
from small_grammar import asking
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ablate import ForeignBackbone, Grid, Mixer, Placement, RunRequest, over, run_campaign
from ablate.grid.errors import SpecError
from ablate.runners.cli.app import execute
from ablate.runners.cli.campaign_plan import plan_campaign, plan_lines
from ablate.runners.execution import Inline
from ablate.runners.provenance.specfile import import_spec_file
from ablate.store import Store
from ablate.store.analysis.judge import conclude, judge
from ablate.training.catalogue.prove import prove
from ablate.training.loop.flops import training_flops
from ablate.training.loop.train import train
from ablate.training.optimisers import Muon, Training
from ablate.training.posthoc.planned_knockouts import find_knockouts
from ablate.training.probes import GroundMass, Probing
from ablate.training.tasks import FinishedTrial, MaskedText
from ablate.training.trial import Trial, build_model, parameters
from ablate.variants import Operator, affine_scaled, babyberta, fox, principled, softmax

SPEC = Path(__file__).parents[1] / "own_mixer.py"
TEXT = SPEC.read_text(encoding="utf-8")
NUMBERS = count()


@pytest.fixture(scope="module")
def spec() -> ModuleType:
    return import_spec_file(SPEC)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def save(*edits: tuple[str, str]) -> Path:
        text = TEXT
        for old, new in edits:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "mine.py"
        path.write_text(text.replace('"tests_', f'"mixed_{next(NUMBERS)}_'), encoding="utf-8")  # a kind has one class
        return path

    return save


@pytest.fixture(scope="module")
def campaign(spec: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both grids, trained, with kept weights."""
    root = tmp_path_factory.mktemp("mixed") / "c"
    grids = [
        each.changed(base=each.base.changed(execution={"keep_weights": True}), name=name)
        for name, each in (("mixed", spec.grid), ("net", spec.net))
    ]
    assert run_campaign(root, grids, Inline(), RunRequest(root, progress=False)).done == 8
    return root


def mixed(spec: ModuleType, **fields: Any) -> Trial:
    return spec.base.changed(operator=spec.ShortConv(), **fields)


def sentence(error: BaseException) -> str:
    text = str(error)
    assert "\n" not in text.strip()
    assert text.count(". ") == 0
    return text


def test_a_grid_of_both_is_planned_trained_and_judged(campaign: Path, spec: ModuleType) -> None:
    with Store.open(campaign, conclude=conclude) as store:
        for name in ("mixed", "net"):
            judged = judge(store, name)
            cell = judged.rows.filter(label="tests_short_conv")["cell"].item()
            check = next(each for each in judged.checks[cell] if each.name == "on")
            assert (check.answer, check.word) == ("unknown", "")
            assert "no stages" in check.reason
            assert judged.rows.filter(cell=cell)["pairs"].item() == 2
        probed = store.sql(
            "SELECT DISTINCT g.grid, g.label, p.name FROM v_probe p JOIN grid_trial g USING (trial)"
        ).rows()
    known = {(grid, label): {name for *at, name in probed if tuple(at) == (grid, label)} for grid, label, _ in probed}
    assert {"importance", "weight_sum_mean"} & known["mixed", "softmax"]
    assert all(name.startswith("gradient_") for name in known["mixed", "tests_short_conv"] | known["net", "softmax"])


def test_the_plan_says_what_is_left_out(spec: ModuleType, tmp_path: Path) -> None:
    lines = list(plan_lines(plan_campaign(RunRequest(tmp_path), [spec.grid])))
    (told,) = [line for line in lines if "knocked out" in line]
    assert "tests_short_conv" in told
    assert "1 cell" in told


def test_a_worker_of_its_own_trains_them(write: Callable[..., Path], tmp_path: Path) -> None:
    path, root = write(), str(tmp_path / "c")
    assert execute(["run", str(path), "--grid", "mixed", "--campaign", root, "--workers", "1"]) == 0
    assert execute(["plan", str(path), "--grid", "mixed", "--campaign", root, "--json"]) == 0


@pytest.mark.parametrize("whole", [False, True], ids=["mixer", "model"])
def test_it_resumes_exactly(spec: ModuleType, memory: Callable, whole: bool) -> None:
    trial = mixed(spec, **({"model": spec.Net()} if whole else {}))
    once, parts = memory(), memory(stop_at=[3])
    train(trial, once)
    assert train(trial, parts).stopped
    parts.stop_at = set()
    train(trial, parts)
    assert parts.logged == once.logged
    assert parts.evaluations == once.evaluations


@pytest.mark.parametrize("whole", [False, True], ids=["mixer", "model"])
def test_parts_of_a_batch_are_the_batch(spec: ModuleType, memory: Callable, whole: bool) -> None:
    trial = mixed(spec, training=GENTLE, **({"model": spec.Net()} if whole else {}))
    trial = trial.changed(task=trial.task.changed(batch=8))
    one, two = memory(), memory()
    train(trial, one)
    train(split(trial, 2), two)
    assert (
        apart(dict(enumerate(one.losses())), dict(enumerate(two.losses())))
        < 8 * ROUNDINGS * torch.finfo(torch.float32).eps
    )


def test_weights_follow_from_seed_and_place_alone(spec: ModuleType) -> None:
    plain, one, same = (
        build_model(each).state_dict()
        for each in (spec.base, mixed(spec), mixed(spec).changed(operator=spec.ShortConv()))
    )
    assert all(torch.equal(one[name], same[name]) for name in one)
    shared = plain.keys() & one.keys()
    assert {"read_in.weight", "layers.1.feedforward.up.weight"} <= shared
    assert all(torch.equal(one[name], plain[name]) for name in shared)
    name = "layers.{}.attention.module.conv.weight"
    assert not torch.equal(one[name.format(0)], one[name.format(1)])
    deeper = mixed(spec, model=spec.base.model.changed(layers=3))
    assert torch.equal(build_model(deeper).state_dict()[name.format(1)], one[name.format(1)])
    other = build_model(mixed(spec, seed=1)).state_dict()
    assert not torch.equal(other[name.format(0)], one[name.format(0)])
    bound = 3**-0.5  # its own start, not that of the backbone
    assert 0.9 * bound < one[name.format(0)].abs().max() <= bound


def test_a_model_of_its_own_draws_the_rest_as_beside_softmax(spec: ModuleType) -> None:
    plain, one = (
        build_model(spec.base.changed(model=spec.Net(), operator=each)).state_dict()
        for each in (softmax(), spec.ShortConv())
    )
    shared = plain.keys() & one.keys()
    assert shared == {f"module.{place}" for place in ("read_in.weight", "read_out.weight", "read_out.bias")}
    assert all(torch.equal(one[name], plain[name]) for name in shared)


def test_it_is_placed_in_some_layers_beside_operators(spec: ModuleType, memory: Callable) -> None:
    mixers_below = spec.base.changed(operator=fox(), placement=Placement(share=0.5, rest=spec.ShortConv()))
    assert [type(each) for each in mixers_below.operators()] == [spec.ShortConv, Operator]
    model = build_model(mixers_below)
    assert [each.layer for each in model.trace_layers(torch.zeros(1, 4, dtype=torch.int64))] == [1]
    assert {layer for layer, *_ in model.numbers()} <= {1}
    world = memory()
    train(mixers_below, world)
    assert {layer for _, name, layer, *_ in world.probes if not name.startswith("gradient_")} == {1}
    assert world.began[1].split("+")[0] == "mixer"


def test_keys_tell_fields_and_kinds_apart(spec: ModuleType) -> None:
    trials = [spec.base, mixed(spec), spec.base.changed(operator=spec.ShortConv(size=4)), mixed(spec, model=spec.Net())]
    assert len({each.key for each in trials}) == 4
    for each in trials:
        again = Trial.model_validate(json.loads(json.dumps(each.data())))
        assert again == each
        assert again.key == each.key


@pytest.mark.parametrize("whole", [False, True], ids=["mixer", "model"])
def test_operations_are_those_that_pytorch_counts(spec: ModuleType, whole: bool) -> None:
    trial = mixed(spec, **({"model": spec.Net()} if whole else {}))
    model = build_model(trial)
    x = torch.randint(16, (trial.task.batch, trial.task.length))
    with FlopCounterMode(display=False) as counter:
        model(x).log_softmax(-1).mean().backward()
    assert training_flops(trial) == trial.training.steps * counter.get_total_flops() > 0
    added = parameters(trial)
    assert added.total == sum(each.numel() for each in model.parameters())
    plain = build_model(trial.changed(operator=softmax()))
    assert added.operator == added.total - sum(each.numel() for each in plain.parameters())


def test_fused_attention_of_its_own_is_counted_however_it_is_called(spec: ModuleType) -> None:
    class Attends(nn.Module):
        def __init__(self, **options: Any) -> None:
            super().__init__()
            self.options = options

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x[:, None]
            return nn.functional.scaled_dot_product_attention(x, x, x, None, 0.0, True, **self.options)[:, 0]

    class Fused(Mixer):
        kind: Literal["tests_fused"] = "tests_fused"
        grouped: bool = False

        def build(self, width: int, **others: int) -> nn.Module:  # noqa: ARG002
            return Attends(scale=0.5, **({"enable_gqa": True} if self.grouped else {}))

    counted = [training_flops(spec.base.changed(operator=Fused(grouped=each))) for each in (False, True)]
    assert all(each > 0 for each in counted)


def test_what_reads_values_is_counted_with_memory_and_has_no_flops(spec: ModuleType, memory: Callable) -> None:
    class Scale(nn.Module):
        def __init__(self, start: float) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(start))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scale * x if float(self.scale.detach()) > 0 else x

    class Reads(Mixer):
        kind: Literal["tests_reads"] = "tests_reads"

        def build(self, width: int, **others: int) -> nn.Module:  # noqa: ARG002
            return Scale(float(torch.ones(width).mean()))

    trial = spec.base.changed(operator=Reads())
    trial.check_inputs()
    assert parameters(trial).total == sum(each.numel() for each in build_model(trial).parameters())
    found = train(trial, memory())
    assert "flops" not in found.cost
    assert found.parameters == parameters(trial).total


PAD, BUILD = "(self.size - 1, 0)", "return Conv(width, self.size)"
RETURN = "return self.out(self.conv(padded).transpose(1, 2))"
NEXT = (PAD, "(self.size - 2, 1)")
MISTAKES = {
    "it sees the next token": ([NEXT], "causal"),
    "it sees the next token behind zeros": (
        [NEXT, (RETURN, RETURN), ("self.out = nn.Linear(width, width)", "self.out = zero(nn.Linear(width, width))")],
        "causal",
    ),
    "it averages over all tokens": ([(RETURN, "return self.out(x - x.mean(1, keepdim=True))")], "causal"),
    "it normalises over the batch": (
        [
            ("self.size = size", "self.size, self.norm = size, nn.BatchNorm1d(width)"),
            ("F.pad(x.", "F.pad(self.norm(x."),
            (f"(1, 2), {PAD})", f"(1, 2)), {PAD})"),
        ],
        "sequences",
    ),
    "a list of modules": (
        [
            (
                "self.out = nn.Linear(width, width)",
                "self.more = [nn.Linear(width, width)]\n        self.out = lambda x: self.more[0](x)",
            )
        ],
        "parameters",
    ),
    "a frozen weight": (
        [("self.out = nn.Linear(width, width)", "self.out = nn.Linear(width, width).requires_grad_(False)")],
        "frozen",
    ),
    "a weight in float64": (
        [("self.size = size", "self.size, self.more = size, nn.Parameter(torch.ones(1).double())")],
        "float64",
    ),
    "another shape": ([(RETURN, f"{RETURN}[:, 1:]")], "shape"),
    "no tensor": ([(RETURN, f"{RETURN}, None")], "tuple"),
    "a lambda": ([(BUILD, "return lambda x: x")], "Module"),
    "the class of a module": ([(BUILD, "return nn.Identity")], "Module"),
    "an error while it is built": ([(BUILD, f"{BUILD}[{{}}['here']]")], "KeyError"),
    "an error in a forward pass": ([(RETURN, "return self.absent(x)")], "AttributeError"),
    "an output that is not finite": ([(RETURN, f"{RETURN} / 0")], "finite"),
    "no gradient": ([(RETURN, f"{RETURN}.detach()")], "gradient"),
    "a change in place": ([("padded = F.pad(x.", "padded = F.pad(x.mul_(2).")], "in place"),
    "weights of one length": (
        [
            (RETURN, "return self.out(x + self.at)"),
            ("self.size = size", "self.size, self.at = size, nn.Parameter(torch.zeros(5, width))"),
        ],
        "RuntimeError",
    ),
}
WHOLE = {
    "operators that it ignores": ([("make_layer(operator,", "make_layer(softmax(),")], "make_layer"),
    "logits of another size": ([("return self.read_out(hidden)", "return hidden")], "tensor"),
    "an output of another library": (
        [("return self.read_out(hidden)", 'return {"logits": self.read_out(hidden)}')],
        "dict",
    ),
    "later tokens": ([("return self.read_out(hidden)", "return self.read_out(hidden.flip(1))")], "causal"),
    "an attention that gets a mixer": ([("make_layer(operator,", "Attention(operator,")], "make_layer"),
}
IMPORTS = (
    "from torch import Tensor, nn\n",
    """import torch
from torch import Tensor, nn

from ablate import Attention


def zero(layer):
    for each in layer.parameters():
        nn.init.zeros_(each)
    return layer


""",
)


@pytest.mark.parametrize(("edits", "word"), [*MISTAKES.values()], ids=[*MISTAKES])
def test_a_mistake_is_one_sentence_before_anything_is_trained(
    write: Callable[..., Path], edits: list[tuple[str, str]], word: str
) -> None:
    path = write(*edits, IMPORTS)
    spec = import_spec_file(path)
    with pytest.raises(SpecError, match=word) as refused:
        mixed(spec).check_inputs()
    sentence(refused.value)
    assert prove(path, None) == 4


@pytest.mark.parametrize(("edits", "word"), [*WHOLE.values()], ids=[*WHOLE])
def test_a_mistake_of_a_whole_model_is_one_sentence(
    write: Callable[..., Path], edits: list[tuple[str, str]], word: str
) -> None:
    spec = import_spec_file(write(*edits, IMPORTS))
    with pytest.raises(SpecError, match=word) as refused:
        mixed(spec, model=spec.Net()).check_inputs()
    sentence(refused.value)


def test_sound_ones_are_proved(write: Callable[..., Path]) -> None:
    assert prove(write(), None) == 0


def test_a_run_refuses_it_and_trains_nothing(write: Callable[..., Path], tmp_path: Path, capsys: Any) -> None:
    path = write(NEXT)
    assert execute(["run", str(path), "--grid", "mixed", "--campaign", str(tmp_path / "c")]) == 2
    assert "causal" in capsys.readouterr().err


def test_an_encoder_may_see_later_tokens(write: Callable[..., Path]) -> None:
    spec = import_spec_file(write(NEXT))

    class Sees(type(spec.base.task)):  # type: ignore[misc]
        kind: Literal["tests_sees_ahead"] = "tests_sees_ahead"
        sees_ahead: ClassVar[bool] = True

    task = Sees(**spec.base.task.model_dump(exclude={"kind"}))
    model = spec.base.model.changed(causal=False)
    mixed(spec, model=model, task=task).check_inputs()


@pytest.mark.parametrize("whole", [False, True], ids=["mixer", "model"])
def test_a_task_with_padding_is_refused(spec: ModuleType, tmp_path: Path, whole: bool) -> None:
    (tmp_path / "text.txt").write_text("one two three. four five six seven.\n" * 40)
    task = MaskedText(source=str(tmp_path / "text.txt"), context=40, batch=4, validation_sentences=4)
    small = babyberta(layers=1, heads=2, width=8, feedforward_width=16, max_positions=64)
    trial = mixed(spec, task=task, model=spec.Net(causal=False) if whole else small)
    with pytest.raises(SpecError, match="padding") as refused:
        trial.check_inputs()
    sentence(refused.value)
    with pytest.raises(SpecError, match="padding"):
        build_model(trial)(torch.zeros(1, 3, dtype=torch.int64), torch.ones(1, 3, 3, dtype=torch.bool))


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"probing": Probing(probes=(GroundMass(),))}, "no attention"),
        ({"training": Training(steps=2, optimiser=Muon())}, "muon"),
        ({"execution": {"path": "reference"}}, "path"),
        ({"operator": affine_scaled(), "execution": {"accumulate": 2}}, "running means"),
        ({"placement": {"side": "inner"}}, "inner"),
    ],
    ids=["probe", "muon", "path", "running means", "placement"],
)
def test_what_needs_layers_of_a_backbone_is_refused(spec: ModuleType, fields: dict[str, Any], word: str) -> None:
    with pytest.raises(SpecError, match=word) as refused:
        mixed(spec, model=spec.Net()).changed(**fields)
    sentence(refused.value)


def test_muon_trains_the_matrices_of_a_mixer(spec: ModuleType, memory: Callable) -> None:
    world = memory()
    train(mixed(spec, training=Training(steps=3, optimiser=Muon())), world)
    assert len(world.logged) == 3


def test_nothing_is_knocked_out(spec: ModuleType, campaign: Path) -> None:
    with pytest.raises(SpecError, match="stages"):
        asking(mixed(spec), "loss")
    with Store.open(campaign) as store:
        trials = dict(store.sql("SELECT trial, g.grid || ' ' || g.label FROM grid_trial g").rows())
        planned, problems = find_knockouts(store, list(trials), None)
    assert {trials[each] for each in planned} == {"mixed softmax"}
    assert {trials[each] for each in problems} == {"mixed tests_short_conv", "net softmax", "net tests_short_conv"}
    assert {sentence(each) for each in problems.values()} == {str(next(iter(problems.values())))}


def test_a_later_evaluation_rebuilds_them(campaign: Path, tmp_path: Path) -> None:
    """That checks the kept weights by the task's own measurements."""
    words = ["evaluate", "grid=net", "label=tests_short_conv", "--campaign", str(campaign), "--knockout"]
    assert execute(words) == 4


def test_a_teacher_may_have_mixers_and_no_foreign_backbone(campaign: Path, spec: ModuleType) -> None:
    kept = {"execution": {"keep_weights": True}}
    found = FinishedTrial(campaign=str(campaign), trial=mixed(spec, **kept).key)
    logits = found.open(spec.base.task).logits(torch.randint(16, (1, 5)))
    assert logits.shape == (1, 5, 16)
    with pytest.raises(ValidationError, match="model of its own"):
        FinishedTrial(campaign=str(campaign), trial=mixed(spec, model=spec.Net(), **kept).key)


def test_controls_are_those_that_have_a_meaning(spec: ModuleType) -> None:
    kinds = {each.kind for each in mixed(spec).controls(spec.grid.measure, spec.base)}
    assert kinds <= {"distance", "parameters"}
    assert not spec.base.controls(spec.grid.measure, mixed(spec))
    assert not mixed(spec, model=spec.Net()).controls(spec.grid.measure)


def test_a_cache_is_refused_and_text_grows_without(spec: ModuleType) -> None:
    for trial in (mixed(spec), mixed(spec, model=spec.Net())):
        with pytest.raises(SpecError, match="cache") as refused:
            build_model(trial).start_cache(3)
        sentence(refused.value)
    model = build_model(mixed(spec)).eval()
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.equal(model.generate(tokens, 4, cache=False)[:, :3], tokens)


def test_learned_numbers_of_a_model_of_its_own_are_probed(spec: ModuleType, memory: Callable) -> None:
    world = memory()
    train(spec.base.changed(model=spec.Net(), operator=principled("head")), world)
    found = {(layer, head) for _, name, layer, head, *_ in world.probes if name == "number.margin.amplification"}
    assert found == {(layer, head) for layer in range(2) for head in range(2)}


@pytest.mark.parametrize("value", [lambda x: x, nn.Identity(), nn.Identity], ids=["lambda", "module", "class"])
@pytest.mark.parametrize("field", ["operator", "model"])
def test_a_module_in_place_of_a_spec_is_one_sentence(spec: ModuleType, field: str, value: object) -> None:
    with pytest.raises(SpecError, match=r"build\(") as refused:
        spec.base.changed(**{field: value})
    sentence(refused.value)
    with pytest.raises(SpecError, match=r"build\("):
        list(Grid(name="g", base=spec.base, axes=[over(field, [value], labels=["mine"])]).cells())


def test_the_class_of_a_mixer_and_an_unknown_kind_are_one_sentence(spec: ModuleType) -> None:
    for value, word in (
        (spec.ShortConv, "call it"),
        ({"kind": "tests_shortconv"}, "tests_short_conv"),
        (spec.Net(), "Operator"),
    ):
        with pytest.raises(SpecError, match=word) as refused:
            spec.base.changed(operator=value)
        sentence(refused.value)
    with pytest.raises(ValidationError):
        spec.ShortConv(sizes=3)


def test_a_class_without_build_or_with_another_is_refused() -> None:
    for family, word in ((Mixer, "width, heads"), (ForeignBackbone, "operators, inputs")):
        with pytest.raises(SpecError, match="no build") as refused:
            type(
                "None",
                (family,),
                {"__module__": __name__, "__annotations__": {"kind": Literal["tests_none"]}, "kind": "tests_none"},
            )
        assert word in sentence(refused.value)
        with pytest.raises(SpecError, match="another"):
            type(
                "Other",
                (family,),
                {
                    "__module__": __name__,
                    "__annotations__": {"kind": Literal["tests_other"]},
                    "kind": "tests_other",
                    "build": lambda self: self,
                },
            )
