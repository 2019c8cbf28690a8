"""Rates, optimizers and the step: as their papers say."""

import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from seqloom.config.train import AdamW, Muon, TrainConfig
from seqloom.nn.embeddings import TokenEmbedding
from seqloom.training.optimizers import AdamW as AdamWOptimizer
from seqloom.training.optimizers import Muon as MuonOptimizer
from seqloom.training.optimizers import Optimizer, orthogonalise
from seqloom.training.schedule import Budget, Progress, rate_at


@pytest.mark.parametrize("kind", ["stable-decay", "linear", "cosine", "inverse-sqrt", "constant"])
def test_every_schedule_rises_in_a_line_and_never_exceeds_its_peak(kind) -> None:
    rates = [rate_at(kind, step=step, spent=step / 1000, warmup=100) for step in range(1001)]
    assert rates[:50] == pytest.approx([(step + 1) / 100 for step in range(50)])
    assert 0.0 <= min(rates) <= max(rates) <= 1.0
    assert rates[100:] == sorted(rates[100:], reverse=True)


@pytest.mark.parametrize(
    ("kind", "spent", "expected"),
    [
        ("stable-decay", 0.6, 1.0),
        ("stable-decay", 0.8, 0.5),
        ("stable-decay", 1.0, 0.0),
        ("linear", 0.25, 0.75),
        ("cosine", 0.5, 0.5),
        ("cosine", 1.0, 0.0),
        ("constant", 1.0, 1.0),
        ("inverse-sqrt", 0.4, math.sqrt(100 / 400)),
    ],
)
def test_schedules_at_points_one_can_compute(kind, spent, expected) -> None:
    assert rate_at(kind, step=round(1000 * spent), spent=spent, warmup=100) == pytest.approx(expected)


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 8, 24), (1, 40, 10)])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_orthogonalised_matrices_have_singular_values_near_one(shape, scale) -> None:
    torch.manual_seed(0)
    u, _, v = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    sizes = torch.logspace(math.log10(0.04), 0.0, min(shape[1:]))
    assert sizes[0] / sizes.pow(4).sum().pow(0.25) > 0.02  # from where on it is promised
    found = orthogonalise(scale * (u * sizes) @ v)
    values = torch.linalg.svdvals(found)[:, : len(sizes)]
    assert values.min() > 0.9
    assert values.max() < 1.1
    near = (found * (u @ v)).sum((1, 2)) / len(sizes)
    assert near.min() > 0.9  # it points where the exact answer, U Vᵀ, points


def test_muon_agrees_with_its_formula_on_each_matrix() -> None:
    torch.manual_seed(0)
    shapes = [(6, 4), (4, 6), (4, 6), (5, 5)]
    weights = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    before, moments = [w.detach().clone() for w in weights], [torch.zeros(shape) for shape in shapes]
    optimizer = MuonOptimizer(weights, rate=0.2, momentum=0.9, weight_decay=0.01)
    for _ in range(3):
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        gradients = [weight.grad.clone() for weight in weights]
        optimizer.step(0.5)
        for n, ((rows, columns), gradient) in enumerate(zip(shapes, gradients, strict=True)):
            moments[n] = 0.9 * moments[n] + gradient
            direction = orthogonalise((gradient + 0.9 * moments[n]).unsqueeze(0))[0]
            step = 0.1 * math.sqrt(max(1.0, rows / columns))
            before[n] = before[n] * (1 - 0.1 * 0.01) - step * direction
            torch.testing.assert_close(weights[n].detach(), before[n], rtol=1e-4, atol=1e-5)


def test_adamw_is_that_of_pytorch() -> None:
    torch.manual_seed(0)
    ours, theirs = (
        [nn.Parameter(torch.ones(3, 2)), nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(1))] for _ in "12"
    )
    betas = (0.8, 0.95)
    one = AdamWOptimizer(ours, rate=0.04, betas=betas, weight_decay=0.1)
    other = torch.optim.AdamW(theirs, lr=0.02, betas=betas, weight_decay=0.1)
    for _ in range(4):
        for mine, yours in zip(ours[:2], theirs[:2], strict=True):  # the last has no gradient
            mine.grad = torch.randn_like(mine)
            yours.grad = mine.grad.clone()
        one.step(0.5)
        other.step()
    for mine, yours in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, yours)


def test_to_train_needs_no_compiler_of_pytorch() -> None:
    program = (
        "import sys, torch; from seqloom.training.step import Learner; from seqloom.config.train import TrainConfig\n"
        "from seqloom.training.optimizers import Optimizer\n"
        "model = torch.nn.Linear(2, 2); updater = Optimizer(model, TrainConfig().optimizer)\n"
        "model(torch.ones(1, 2)).sum().backward(); updater.step(); print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(5, 4)
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)


@pytest.mark.parametrize("config", [AdamW(), Muon()])
def test_every_parameter_is_updated_once_and_the_state_goes_round(config) -> None:
    def steps(model: Small, updater: Optimizer, seeds: range) -> None:
        for seed in seeds:
            torch.manual_seed(seed)
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            updater.step()

    torch.manual_seed(0)
    model = Small()
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    updater = Optimizer(model, config)
    updater.set_rate(0.5)
    steps(model, updater, range(2))
    assert all(not torch.equal(p, start[name]) for name, p in model.named_parameters())
    copy = Small()
    copy.load_state_dict(model.state_dict())
    other = Optimizer(copy, config)
    other.load(dict(updater.state()))
    other.set_rate(0.5)
    steps(model, updater, range(2, 5))
    steps(copy, other, range(2, 5))
    for mine, theirs in zip(model.parameters(), copy.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_the_rate_is_a_share_of_each_peak() -> None:
    model = nn.Linear(2, 2)
    updater = Optimizer(model, AdamW(learning_rate=0.1, weight_decay=0.0))
    updater.set_rate(0.0)
    before = model.weight.detach().clone()
    model.weight.grad = torch.ones_like(model.weight)
    updater.step()
    assert torch.equal(model.weight, before)


def spend(budget: Budget, steps: int, **spent: float) -> list[float]:
    """The rates of the first steps, each of which spends so much."""
    progress = Progress(warmup=budget.count_warmup(Progress()))
    rates = []
    for _ in range(steps):
        rates.append(budget.rate(progress))
        progress.step += 1
        progress.seconds += spent.get("seconds", 0.0)
        progress.predictions += int(spent.get("predictions", 0))
    return rates


@pytest.mark.parametrize(("steps", "warmup"), [(1, 1), (20, 1), (250, 13), (1000, 50), (4000, 200), (100_000, 200)])
def test_the_warm_up_follows_the_budget(steps: int, warmup: int) -> None:
    rates = spend(Budget(TrainConfig(steps=steps), 10), min(steps, 2 * warmup))
    assert [rate < 1.0 for rate in rates].index(False) + 1 == warmup
    assert spend(Budget(TrainConfig(steps=steps, warmup=7), 10), 1) == [pytest.approx(1 / 7)]


@pytest.mark.parametrize(
    ("config", "spent"),
    [
        (TrainConfig(minutes=1.0), {"seconds": 0.6}),
        (TrainConfig(tokens=100_000), {"predictions": 1000}),
        (TrainConfig(steps=100), {}),
        (TrainConfig(epochs=10.0), {}),
    ],
)
@pytest.mark.parametrize("schedule", ["stable-decay", "linear", "cosine", "inverse-sqrt", "constant"])
def test_every_schedule_fits_every_budget(schedule: Any, config: TrainConfig, spent: dict[str, float]) -> None:
    budget = Budget(config.model_copy(update={"schedule": schedule}), 10)  # each of them is spent in a hundred steps
    rates = spend(budget, 100, **spent)
    assert 0.0 < rates[0] < 0.5
    assert max(rates) == pytest.approx(1.0, abs=0.06)
    assert rates.index(max(rates)) in (4, 5, 6)
    assert rates[-1] < 0.05 or schedule in ("inverse-sqrt", "constant")


@pytest.mark.parametrize(
    ("config", "stages"),
    [
        (TrainConfig(steps=5), 1),
        (TrainConfig(steps=45), 4),
        (TrainConfig(steps=250), 10),
        (TrainConfig(steps=50_000), 100),
        (TrainConfig(minutes=5.0), 10),
        (TrainConfig(minutes=60.0), 12),
        (TrainConfig(tokens=1_000_000), 10),
    ],
)
def test_validations_and_checkpoints_follow_the_budget(config: TrainConfig, stages: int) -> None:
    assert Budget(config, 10).stages == stages


def test_a_budget_says_what_follows_from_it() -> None:
    def tell(**given: Any) -> str:
        budget = Budget(TrainConfig(**given), 250)
        return budget.plan(Progress(warmup=budget.count_warmup(Progress())), validates=True)

    every = "a validation and a checkpoint every"
    assert tell() == f"10 epochs (2,500 steps); warm-up over 125 steps; {every} 250 steps"
    assert tell(epochs=1.0) == f"1 epoch (250 steps); warm-up over 13 steps; {every} 25 steps"
    assert tell(minutes=5.0) == (
        f"5 minutes; warm-up over the first 5% of it, but at most 200 steps; {every} 30 seconds"
    )
    assert tell(steps=1000, warmup=1, save_every=7) == (
        "1,000 steps; warm-up over 1 step; a validation every 100 steps; a checkpoint every 7 steps"
    )


@pytest.mark.parametrize(
    ("steps_per_epoch", "epochs"), [(1, 1000), (3, 334), (30, 34), (99, 11), (100, 10), (5000, 10)]
)
def test_a_budget_that_is_not_given_is_ten_epochs_or_a_thousand_steps(steps_per_epoch: int, epochs: int) -> None:
    budget = Budget(TrainConfig(), steps_per_epoch)
    assert budget.given == {"epochs": epochs}
    assert budget.steps == epochs * steps_per_epoch >= 1000
