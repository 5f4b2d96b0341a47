"""The modes of studies/d_pot/served are those of the agent files, and its seconds those of the log."""

from argparse import Namespace
from pathlib import Path

import pytest
import yaml

from studies.d_pot.chats import MODES as CHAT_MODES
from studies.d_pot.chats import REFERENCES
from studies.d_pot.served.__main__ import parse
from studies.d_pot.served.modes import (
    MODES,
    PLAYED,
    RECIPE,
    ROOT,
    digest_of,
    evaluations,
    of_smollm2,
    preparation,
    stages_of,
)
from studies.d_pot.served.server_log import request_seconds
from vlm_agent.agents.dynamic_planning import DynamicPlanningSettings
from vlm_agent.evaluation.comparison.stages import OFFLINE, ONLINE

SIZES = {"simulated": 60, "chats": 6, "chats_per_mode": 9, "steps": 4, "episodes": 2, "tasks": 1, "smollm2_episodes": 1}
LENGTHS = {"max_tokens": 24, "smollm2_max_tokens": 12}
OPTIONS = Namespace(output=Path("out"), recipe=RECIPE, encoder="encoder", **SIZES, **LENGTHS)
STAGES = stages_of(OPTIONS)


def settings_of(mode: str) -> DynamicPlanningSettings:
    agent = STAGES.comparison.agents[mode]
    return DynamicPlanningSettings(**yaml.safe_load(agent.agent.read_text()) | agent.overrides)


def test_every_agent_file_of_the_planner_is_a_mode():
    files = {path.stem for path in (ROOT / "eval/agents").glob("planner_*.yaml")}
    assert {mode.file for mode in MODES.values()} == files


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_is_that_of_its_agent_file_and_reads_html(mode):
    settings = settings_of(mode)
    assert mode.startswith(settings.mode)
    assert (settings.screen, settings.concurrency, settings.past) == ("html", 1, "own")
    assert (settings.references is not None) == (mode == "d_pot_references")
    if settings.mode == "react":
        assert mode == f"react_{settings.rounds}"


def test_the_model_learns_the_chats_that_are_written_before():
    simulate, convert, chats, train = preparation(STAGES, OPTIONS)
    assert (simulate.name, convert.name) == ("simulate", "convert")
    assert str(chats.output) == train.words[train.words.index("--data.chats") + 1]


def test_every_mode_is_scored_on_the_same_episodes_after_d_pot_and_two_play_online():
    stages = evaluations(STAGES, list(MODES), (OFFLINE, ONLINE))
    offline = [stage for stage in stages if stage.kind == OFFLINE]
    assert [stage.owner[0] for stage in offline] == ["d_pot", *(mode for mode in MODES if mode != "d_pot")]
    assert len({stage.words[: stage.words.index("--agent")] for stage in offline}) == 1
    assert {stage.owner[0] for stage in stages if stage.kind == ONLINE} == set(PLAYED)


def test_replies_of_smollm2_which_rarely_end_are_shorter():
    limits = {
        key: {agent.overrides["max_tokens"] for agent in stages.comparison.agents.values()}
        for key, stages in {"learned": STAGES, "smollm2": of_smollm2(OPTIONS)}.items()
    }
    assert limits == {"learned": {24}, "smollm2": {12}}


def test_every_mode_has_chats_of_its_own():
    assert {*CHAT_MODES, REFERENCES} == set(MODES)


def test_smollm2_writes_beside_the_trained_model():
    folders = [stage.output for stages in (STAGES, of_smollm2(OPTIONS)) for stage in stages if stage.kind == OFFLINE]
    assert len(set(folders)) == len(MODES) + len(PLAYED)


@pytest.mark.parametrize(
    "change", [{"steps": 5}, {"chats": 7}, {"chats_per_mode": 8}, {"simulated": 61}, {"max_tokens": 25}]
)
def test_figures_of_another_model_are_recorded_apart(change):
    assert digest_of(Namespace(**vars(OPTIONS) | change)) != digest_of(OPTIONS)


RECEIVED = "[WARNING|chat_completion.py:122] 2026-01-02 03:04:{} >> [Request received] Model: m, CB: False\n"
ANSWERED = '2026-01-02 03:04:{} INFO:     127.0.0.1:5 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
HEALTH = '2026-01-02 03:04:{} INFO:     127.0.0.1:5 - "GET /health HTTP/1.1" 200 OK\n'


def test_a_request_lasts_from_its_line_to_that_of_its_response(tmp_path):
    log = tmp_path / "server.log"
    lines = [HEALTH.format("01,000"), RECEIVED.format("02,000"), HEALTH.format("03,000"), ANSWERED.format("04,250")]
    log.write_text("".join(lines) + RECEIVED.format("05,000") + ANSWERED.format("05,125"))
    assert request_seconds(log) == [2.25, 0.125]


def test_a_request_that_a_kill_left_without_a_response_is_not_counted(tmp_path):
    log = tmp_path / "server.log"
    log.write_text(RECEIVED.format("02,000") + RECEIVED.format("08,000") + ANSWERED.format("09,000"))
    assert request_seconds(log) == [1.0]


def test_quick_runs_with_what_make_install_brings(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", ["planner_modes", "--quick", "--output", str(tmp_path)])
    options = parse()
    assert (options.parts, options.encoder) == ([OFFLINE, ONLINE], "words")
