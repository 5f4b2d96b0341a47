"""Figure 5: a model for each subset, scored on every subset."""

import json
from argparse import Namespace

from studies.ablation.runs import command
from studies.auto_ui.arms import SUBSETS, budget_folder, run_of

STEPS = 200
"""Training steps of a model. A subset has a fifth of the episodes, so it is read about twice."""


def transfer_of(options: Namespace) -> dict:
    """Trains and evaluates the five models with the first seed, and returns transfer.json."""
    steps = min(STEPS, options.steps)
    short = Namespace(**vars(options) | {"steps": steps})
    runs = {subset: run_of(f"only {subset}", options.seeds[0], short) for subset in SUBSETS}
    for subset, run in runs.items():
        if not run.has_files:
            print(f"transfer: {subset}, {steps} steps", flush=True)
        run.complete_files()
    output = budget_folder(short) / "transfer"
    command("transfer", *(f"{subset}={run.evaluation}" for subset, run in runs.items()), "--output", output)
    return json.loads((output / "transfer.json").read_text(encoding="utf-8")) | {"steps": steps}
