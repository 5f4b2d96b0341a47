"""The entries of a viewed folder."""

import json

from vlm_agent.viewing.catalogue import entries_in


def test_a_run_without_a_score_has_a_dash(tmp_path):
    scores = {scorer: {"overall": {"partial_match": None, "interval": None}} for scorer in ("official", "strict")}
    (tmp_path / "metrics.json").write_text(json.dumps({"trained": scores}))
    (entry,) = entries_in(tmp_path)
    assert entry.figures == "partial match, official and strict\ntrained: –, –"


def test_a_run_with_a_damaged_file_is_listed_with_the_reason(tmp_path):
    (tmp_path / "recipe.yaml").touch()
    (tmp_path / "progress.jsonl").write_text('{"step": 1, "loss": "x"}\n')
    (entry,) = entries_in(tmp_path)
    assert entry.kind == "training run"
    assert entry.figures.startswith(f"cannot be read: {tmp_path / 'progress.jsonl'} is damaged (")
