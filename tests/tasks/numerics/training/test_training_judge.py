"""Updates judged against AdamW's first step in closed form."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from day0.adapters.base.target import TrainingStep
from day0.tasks.numerics.training.training_judge import Steps, judge_node

NAME = "layer.weight"
SETTINGS = {"lr": 2.0**-6, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 2.0}
BEFORE = np.linspace(-0.05, 0.05, 4096).reshape(64, 64).astype(np.float32)


def step(gradient: np.ndarray, dtype: type, added: np.ndarray | float = 0.0) -> TrainingStep:
    """AdamW's first step in numpy, rounded to that dtype."""
    slope = gradient.astype(np.float64)
    before = BEFORE.astype(np.float64)
    after = before * (1 - SETTINGS["lr"] * SETTINGS["weight_decay"])
    after = after - SETTINGS["lr"] * slope / (np.abs(slope) + SETTINGS["eps"]) + added
    return TrainingStep(
        losses=torch.ones(4),
        gradients={NAME: torch.from_numpy(gradient.astype(dtype))},
        weights={NAME: torch.from_numpy(after.astype(dtype))},
        routed={},
    )


def judged(due: np.ndarray, noise: np.ndarray, got: np.ndarray, added: np.ndarray | float = 0.0) -> str:
    steps = Steps(
        reference=step(due, np.float64),
        noise=step(noise, np.float32),
        target=step(got, np.float32, added),
        dtype=torch.float32,
        before={NAME: torch.from_numpy(BEFORE)},
        settings=SETTINGS,
    )
    return judge_node("layer", [NAME], [], steps).reason


@pytest.fixture
def gradients() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The reference's, and two that are off by independent noise of a ten-millionth."""
    chance = np.random.default_rng(0)
    due = chance.normal(0, 6e-4, BEFORE.shape)
    return due, due + chance.normal(0, 2e-10, due.shape), due + chance.normal(0, 2e-10, due.shape)


def test_one_gradient_near_the_eps_of_adamw_is_no_measure(
    gradients: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    """There the step follows the gradient's noise, by luck little in the noise arm and much in the target."""
    due, noise, got = gradients
    due[3, 8] = 8.3e-9
    noise[3, 8], got[3, 8] = due[3, 8] + 2e-12, due[3, 8] + 3e-10
    assert judged(due, noise, got) == ""


def test_a_step_that_is_off_in_one_element_is_found(
    gradients: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    added = np.zeros(BEFORE.shape)
    added[5, 7] = 1e-4
    assert "update of layer.weight" in judged(*gradients, added)
    assert "on its own gradient" in judged(*gradients, added)
