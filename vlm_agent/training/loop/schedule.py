"""The learning rate of a step: linear warm-up, then constant, linear or cosine."""

import math

from vlm_agent.recipe.run import TrainingRecipe


def warmup_steps(training: TrainingRecipe, steps: int) -> int:
    """The steps of warm-up of a run of `steps` steps; a value below 1 is a fraction of them."""
    value = training.warmup_steps
    return int(value) if value >= 1 else math.ceil(value * steps)


def rate(training: TrainingRecipe, done: int, steps: int) -> float:
    """The factor of the recipe's learning rates in the step after `done` of `steps`: 0 to 1."""
    warmup = warmup_steps(training, steps)
    if done < warmup:
        return done / warmup
    if training.schedule == "constant":
        return 1.0
    left = max(0.0, (steps - done) / max(1, steps - warmup))
    return left if training.schedule == "linear" else 0.5 * (1 - math.cos(math.pi * left))
