"""Sampling at a temperature."""

from dataclasses import dataclass
from pathlib import Path

import torch

from vlm_agent.agents.decoding.sampling import Sampling
from vlm_agent.agents.vlm import VlmSettings
from vlm_agent.agents.vlm.agent import VlmAgent

LOGITS = torch.tensor([0.1, 0.2, 0.3])


@dataclass
class Loaded:
    sampling: Sampling | None = None


def test_an_agent_keeps_no_choice_however_many_steps_it_plays(monkeypatch):
    monkeypatch.setattr(VlmAgent, "from_run", lambda *_: Loaded())
    monkeypatch.setattr(VlmSettings, "is_merged", True)
    sampling = VlmSettings(run="run", temperature=1.0).build(Path("run")).sampling
    kept = Sampling(1.0, "agent")
    drawn = [[one.of_step("episode", step)([], 0, lambda: LOGITS) for step in range(9)] for one in (sampling, kept)]
    assert drawn[0] == drawn[1] and len(set(drawn[0])) > 1
    assert (len(sampling.answers), len(kept.answers)) == (0, 9)
