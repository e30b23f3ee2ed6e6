"""Numbers as parameters: where they start, what is trained, shared, drawn, averaged and refused."""

import math

import pytest
import torch
from torch import Tensor

from ablate.variants import Operator, Rescale, Scalars, Tokens, Transformer, gpt2, llama2
from ablate.variants.laws.battery import prove
from ablate.variants.model.parameters import NumberParameters
from ablate.variants.model.placement import Placement
from ablate.variants.model.running_means import BatchShare, RunningMeans
from ablate.variants.model.shapes import shapes_only
from ablate.variants.number import ByDepth, Contrast, HeadShape, Matrix, Number, Vector
from ablate.variants.papers.affine_scaled import affine_gated, affine_scaled, gated_elements, gated_heads
from ablate.variants.papers.integral import differential
from ablate.variants.stages.output_gates import PerChannel, PerHead
from ablate.variants.stages.readouts import ValueBias

SHAPE = HeadShape(heads=3, query=7, semantic=7, signal=7, value=5, width=13)
LAMBDA_INIT = {0: 0.2, 1: 0.3555, 2: 0.4707, 3: 0.5561, 10: 0.7701, 11: 0.7779}


def numbers_of(operator: Operator, layer: int = 0, shape: HeadShape = SHAPE) -> NumberParameters:
    return NumberParameters(operator, shape, {}, layer)


def inputs(batch: int = 2, length: int = 11) -> tuple[Tensor, Tensor]:
    """A query [B, H, T, D] and a layer's input [B, T, W]."""
    made = torch.Generator().manual_seed(0)
    return torch.randn(batch, 3, length, 7, generator=made), torch.randn(batch, length, 13, generator=made)


def gate(per: str) -> Operator:
    return Operator(output_gate=PerChannel(opening=Vector(init=0.3, per=per, link="unit")))


class TestStart:
    @pytest.mark.parametrize(("layer", "start"), LAMBDA_INIT.items())
    def test_lambda_and_the_factor_of_the_norm_start_as_in_the_paper(self, layer: int, start: float) -> None:
        found = differential(form="scalar").at_init(SHAPE, layer)
        assert found["merge.factor"].item() == pytest.approx(start, abs=5e-5)
        assert found["head_norm.factor"].item() == pytest.approx(1 - start, abs=5e-5)
        assert differential().numbers()["merge.factor"].init_at(layer) == pytest.approx(start, abs=5e-5)

    def test_lambda_counts_layers_of_the_whole_model(self) -> None:
        operators = Placement(share=0.5).operators(differential(form="scalar"), 4)
        model = Transformer(gpt2(layers=4, heads=2, width=16), operators, inputs=Scalars(), seed=0)
        found = {layer: value for layer, _, name, value in model.numbers() if name == "merge.factor"}
        assert found == {2: pytest.approx(LAMBDA_INIT[2], abs=5e-5), 3: pytest.approx(LAMBDA_INIT[3], abs=5e-5)}


class TestContrast:
    def test_the_spread_of_lambda_over_seeds_is_that_of_the_paper(self) -> None:
        """q . k of n channels has variance n 0.1^4; the difference of two has twice that: 0.08 for n = 32."""
        number = Contrast(init=0.2, deep=0.8)
        table = torch.zeros(20_000, 1, 4, 32)
        number.disturb(table, torch.Generator().manual_seed(0))
        assert number.value(table, 0).std().item() == pytest.approx(0.080, abs=0.002)


class TestDrawn:
    def noisy(self, per: str, **fields: object) -> Operator:
        return Operator(readout=ValueBias(value_bias=Vector(init=0.0, per=per, spread=0.5, **fields)))

    def test_what_is_drawn_depends_on_seed_and_path_and_on_nothing_else(self) -> None:
        def draw(operator: Operator, seed: int, path: str) -> Tensor:
            numbers = numbers_of(operator)
            numbers.draw(seed, path)
            return numbers.table["readout_value_bias"].detach()

        alone, more = self.noisy("head"), self.noisy("head").changed(output_gate=PerHead())
        assert torch.equal(draw(alone, 0, "a"), draw(alone, 0, "a"))
        assert torch.equal(draw(alone, 0, "a"), draw(more, 0, "a"))
        assert not torch.equal(draw(alone, 0, "a"), draw(alone, 1, "a"))
        assert not torch.equal(draw(alone, 0, "a"), draw(alone, 0, "b"))

    def test_what_layers_share_is_drawn_once(self) -> None:
        operator = self.noisy("constant", learned=True)
        models = [
            Transformer(gpt2(layers=layers, heads=2, width=16), [operator] * layers, inputs=Scalars(), seed=0)
            for layers in (1, 3)
        ]
        one, three = (model.number_parameters() for model in models)
        assert len(one) == len(three) == 1
        assert torch.equal(one[0], three[0])
        assert one[0].abs().max() > 0

    def test_a_projection_is_drawn_if_it_says_so_and_the_number_is_then_unknown_at_step_0(self) -> None:
        operator = gated_heads(projection_std=0.5)
        numbers = numbers_of(operator)
        assert not numbers.projection["output_gate_opening"].any()
        numbers.draw(0, "a")
        assert numbers.projection["output_gate_opening"].any()
        with pytest.raises(ValueError, match=r"output_gate.opening of 'Gated heads' starts at random; pass numbers="):
            operator.at_init(SHAPE)
        assert operator.output_gate == PerHead().changed(opening=operator.output_gate.opening)
        assert gated_heads(projection_std=0.0).output_gate == PerHead()


def trained_model() -> Transformer:
    """One layer and head whose alpha differs by token."""
    model = Transformer(gpt2(layers=1, heads=1, width=16), [affine_scaled()], inputs=Scalars(), seed=0)
    projection = model.blocks()[0].attention.numbers.projection["rescale_scale"]
    projection.data.normal_(generator=torch.Generator().manual_seed(2))
    return model


def scales_of(model: Transformer, x: Tensor) -> Tensor:
    """alpha of every token of one sequence."""
    trace = next(iter(model.trace_layers(x)))
    return trace.worked.numbers["rescale.scale"].detach().flatten()


class TestWithoutBias:
    def test_it_stays_at_its_start_for_a_zero_query_and_is_no_part_of_the_state(self) -> None:
        number = Number(init=0.3, per="token", link="unit", bias=False)
        numbers = numbers_of(Operator(output_gate=PerHead(opening=number)))
        query, x = inputs()
        assert set(numbers.state_dict()) == {"projection.output_gate_opening"}
        assert list(numbers.learned_values()) == []
        torch.testing.assert_close(numbers.values(query, 0 * x)["output_gate.opening"], torch.full((2, 3, 11, 1), 0.3))
        numbers.projection["output_gate_opening"].data.fill_(0.01)
        found = numbers.values(query, x)["output_gate.opening"]
        expected = torch.sigmoid(math.log(0.3 / 0.7) + 0.01 * x.sum(-1))
        torch.testing.assert_close(found, expected[:, None, :, None].expand(2, 3, 11, 1))

    @pytest.mark.parametrize("operator", [PerHead, PerChannel], ids=lambda each: each.__name__)
    def test_it_keeps_the_laws(self, operator: type[PerHead] | type[PerChannel]) -> None:
        gate = operator()
        example = Operator(output_gate=gate.changed(opening=gate.opening.changed(bias=False)))
        assert [found.words for found in prove(example) if not found.proved] == []


class TestRunningMean:
    def test_padding_does_not_count(self) -> None:
        """Tokens are padding if they do not see themselves; parts of a batch count by their tokens."""
        whole, lengths = torch.randn(3, 64, 1, generator=torch.Generator().manual_seed(1)), (4, 64, 9)
        visible = (torch.arange(64) < torch.tensor(lengths)[:, None])[:, None, :]
        alone = torch.cat([scales_of(trained_model(), whole[i : i + 1, :n]) for i, n in enumerate(lengths)]).mean()
        once, parts = trained_model(), trained_model()
        once(whole, visible)
        shares = [BatchShare(whole[i : i + 1], 1 / 3, lambda: None, visible[i : i + 1]) for i in range(3)]
        RunningMeans(parts).move(shares, lambda total: total)
        for model in (once, parts):
            (mean,) = {value for *_, name, value in model.numbers() if name == "rescale.mean"}
            assert mean == pytest.approx(0.1 * alone.item(), rel=1e-6)

    def test_no_gradient_flows_through_it_and_the_next_step_may_change_it(self) -> None:
        numbers = numbers_of(affine_scaled("unit"))
        first = numbers.values(*inputs())
        assert not first["rescale.mean"].requires_grad
        product = (first["rescale.scale"] * first["rescale.mean"]).sum()
        numbers.values(*inputs())
        product.backward()
        assert numbers.table["rescale_scale"].grad.abs().min() > 0

    def test_it_is_part_of_the_state_and_a_constant_is_not(self) -> None:
        numbers = numbers_of(affine_scaled())
        numbers.values(*inputs())
        state = numbers.state_dict()
        assert set(state) == {"rescale_mean", "table.rescale_scale", "projection.rescale_scale"}
        other = numbers_of(affine_scaled()).eval()
        other.load_state_dict(state)
        assert torch.equal(other.values(*inputs())["rescale.mean"], numbers.eval().values(*inputs())["rescale.mean"])
        assert (
            set(numbers_of(Operator(output_gate=PerHead(opening=Number(init=0.5, link="unit")))).state_dict()) == set()
        )


class TestLearned:
    def list_numbers(self, operator: Operator) -> list[tuple[int | None, str, float]]:
        return [(head, name, round(value, 4)) for head, name, value in numbers_of(operator).learned_values()]

    def test_every_kind_of_number_is_told(self) -> None:
        per_head = [(head, "output_gate.opening", 0.6708) for head in range(3)]  # 0.3 sqrt(5)
        assert self.list_numbers(gate("head")) == per_head
        assert self.list_numbers(gate("token")) == self.list_numbers(gate("head"))
        assert self.list_numbers(gate("constant")) == []
        assert self.list_numbers(affine_scaled()) == [
            *((head, "rescale.scale", 0.5) for head in range(3)),
            *((head, "rescale.mean", 0.0) for head in range(3)),
        ]
        assert self.list_numbers(differential())[0] == (None, "merge.factor", 0.2)


@pytest.mark.parametrize(("width", "heads", "layers"), [(1024, 16, 24), (2048, 32, 16), (3072, 24, 28)])
def test_gates_have_the_parameters_of_paper_000(width: int, heads: int, layers: int) -> None:
    """0.4 M, 1.0 M and 2.1 M for Affine without biases; 67.1 M and 264.2 M for elements of the two larger models."""

    def count_added(operator: Operator) -> int:
        backbone = llama2(layers=layers, heads=heads, width=width, feedforward_width=64)
        with shapes_only():
            return Transformer(backbone, [operator] * layers, inputs=Tokens(7), seed=0).operator_parameters()

    operator = affine_scaled()
    scale = operator.rescale.scale.changed(bias=False)
    counts = count_added(operator.changed(rescale=operator.rescale.changed(scale=scale)))
    assert counts == {1024: 393_216, 2048: 1_048_576, 3072: 2_064_384}[width]
    assert count_added(operator) == count_added(gated_heads()) == counts + heads * layers
    assert count_added(gated_elements()) == (width + 1) * width * layers
    assert count_added(affine_gated()) == count_added(gated_elements()) + count_added(operator)


def test_numbers_of_equal_meaning_have_equal_keys() -> None:
    pairs = [
        (Vector(init=0.0, per="head", along="first"), Vector(init=0.0, per="head")),
        (ByDepth(init=1.0, deep=1.0, rate=2.0), ByDepth(init=1.0, deep=1.0)),
        (Contrast(init=0.2, deep=0.8, form="scalar", spread=0.7), Contrast(init=0.2, deep=0.8, form="scalar")),
        (Matrix(learned=True), Matrix()),
        (Number(init=0.5, per="head", projection_std=0.1), Number(init=0.5, per="head")),
    ]
    assert all(a.key == b.key for a, b in pairs)
    assert Contrast(init=0.2, deep=0.8).key != Contrast(init=0.2, deep=0.8, form="scalar").key
    assert "mean" in {field for field, number in Rescale.members()["affine"].example().numbers().items()}
