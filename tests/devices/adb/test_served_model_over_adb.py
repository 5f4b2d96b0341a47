"""The whole chain with a trained model: demonstrated over ADB, screens read from pixels, learned from the agent's own
prompts, served by `transformers serve`, and repeated over ADB."""

import json
from pathlib import Path

import pytest
import yaml
from devices.adb.test_vision_tasker_over_adb import INSTALL, LARGE, act_over_adb

from vlm_agent.cli import OK, main
from vlm_agent.datasets.sources.traces import read_trace
from vlm_agent.models.serving import served_model
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.adb_daemon import Handset, PhoneServer

ROOT = Path(__file__).parents[3]


def learn(folder: Path) -> Path:
    """The run of a tiny text model that has learned one demonstration by heart."""
    status, phone, _, _ = act_over_adb(folder, LARGE)
    assert (status, INSTALL.reached(phone)) == (OK, True)
    shards, agent = folder / "shards", ROOT / "eval/agents/vision_tasker.yaml"
    convert = ["convert", "--source", "trace", "--input", str(folder / "trace"), "--output", str(shards)]
    assert main(convert) == OK
    (folder / "chats").mkdir()
    assert main(["chats", str(shards), "--agent", str(agent), "--output", str(folder / "chats" / "a.jsonl")]) == OK
    recipe = yaml.safe_load((ROOT / "recipes/comparison/text_chats_tiny.yaml").read_text())
    recipe |= {"output": str(folder / "run"), "data": recipe["data"] | {"chats": str(folder / "chats")}}
    recipe["model"]["language_model"]["config"] |= {"num_hidden_layers": 2}
    recipe["training"] |= {"steps": 150, "batch_size": 2, "save_steps": None, "bf16": False}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    assert main(["train", "--config", str(folder / "recipe.yaml")]) == OK
    return folder / "run"


@pytest.mark.ocr
@pytest.mark.slow
def test_a_served_model_repeats_over_adb_what_it_has_learned_from_pixels(one_adb, tmp_path):
    run = learn(tmp_path)
    phone = SimulatedPhone(INSTALL.seed, LARGE)
    INSTALL.set_up(phone)
    with served_model(run, tmp_path / "server.log") as (url, model), PhoneServer(Handset(phone)) as server:
        settings = {"agent": "vision_tasker", "endpoint": url, "model": model}
        (tmp_path / "served.yaml").write_text(json.dumps(settings))
        where = ["--device", f"adb:{server.serial}", "--goal", INSTALL.goal, "--trace", str(tmp_path / "repeated")]
        assert main(["act", "--agent", str(tmp_path / "served.yaml"), *where, "--elements", "read"]) == OK
        trace = read_trace(tmp_path / "repeated")
        assert INSTALL.reached(server.handset.phone), [step.action for step in trace.steps]
