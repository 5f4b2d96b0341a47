"""A training that loses its nodes repeatedly ends with the weights of an uninterrupted one."""

import pytest
from helpers import tiny
from helpers.slurm.whole_runs import SECONDS, difference, ledger, lose_node, wait_for_training, weights, write_recipe

from vlm_agent.training.run_folder.status import read_status

NOTICES = 2
STEPS = 3 * (NOTICES + 1)
"""Training stops after the step in progress, which may be the second or third since the start."""


def _submit(workplace, run):
    recipe = write_recipe(workplace.folder, run, steps=STEPS, accumulation=8)
    return workplace.submit("--nodes=2", "slurm/train.sbatch", "--config", recipe, "--output", run)


@pytest.mark.slow
def test_a_training_preempted_three_times_ends_with_the_weights_of_an_uninterrupted_one(workplace):
    tiny.write_shards(workplace.folder / "shards", [tiny.episode(number) for number in range(8)])
    undisturbed, run = workplace.folder / "undisturbed", workplace.folder / "preempted"
    job = _submit(workplace, "undisturbed")
    assert workplace.cluster.wait_for(job, seconds=SECONDS) == [{"COMPLETED"}], workplace.log("train", job)

    job = _submit(workplace, "preempted")
    for start in range(1, NOTICES + 1):
        wait_for_training(workplace, run, job, start)
        workplace.run("scancel", "--batch", "--signal=USR1", job)
    wait_for_training(workplace, run, job, NOTICES + 1)
    lose_node(workplace, "node2", job)
    assert workplace.cluster.wait_for(job, seconds=SECONDS) == [{"COMPLETED"}], workplace.log("train", job)

    assert [event for event, _ in ledger(run)] == ["start", "again"] * NOTICES + ["start", "start", "done"]
    saved = [step for event, step in ledger(run) if event == "again"]
    assert sorted({0, *saved, STEPS}) == [0, *saved, STEPS]
    assert len(read_status(run).starts) == NOTICES + 2
    assert weights(run) == weights(undisturbed), f"the furthest weight is {difference(run, undisturbed)} away"
