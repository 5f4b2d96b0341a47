"""An evaluation on annotated shards reports who wrote the texts that its agent reads, and what that model knew."""

from helpers.agents.chat_server import Reply, serving
from helpers.pages.annotation_requests import written

from vlm_agent.cli import main
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.evaluation.about import ANNOTATION, text_origins


def test_the_model_of_an_annotation_is_named_with_what_it_knew(shards, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    with serving(lambda _, body: Reply(written(body))) as (url, _):
        words = ["annotate", "--endpoint", url, "--model", "a VLM"]
        assert main([*words, str(shards), "--output", str(first)]) == 0
        assert main([*words, str(first), "--output", str(second), "--texts", "screen"]) == 0
    lines = text_origins(ShardDataset(first), range(4), ("screen", "result"))
    assert lines == {
        "screen descriptions": "20 steps: annotation by a VLM, from the screen alone; no phone gives it",
        "action results": (
            "16 steps: annotation by a VLM, from the screens before and after, with the true action known; no phone "
            "gives it"
        ),
    }
    kept = text_origins(ShardDataset(second), range(4), ("screen", "result"))
    assert kept == {"screen descriptions": f"20 steps: {ANNOTATION}", "action results": f"16 steps: {ANNOTATION}"}
