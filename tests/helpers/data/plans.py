"""Episodes with plans; each line names its part and step, and a plan holds no line of a later one."""

from dataclasses import replace

from vlm_agent.episodes import Episode


def with_plans(episode: Episode) -> Episode:
    steps = [
        replace(step, notes={**step.notes, "plan": f"plan-{n} {'b' * n}\nrest-{n}", "step": f"step-{n}"})
        for n, step in enumerate(episode.steps)
    ]
    return replace(episode, steps=tuple(steps))


FORMS = {
    "given step": {"step": "given"},
    "given": {"plan": "given", "step": "given"},
    "learned step": {"step": "learned"},
    "dynamic": {"plan": "learned"},
    "d_pot": {"plan": "learned", "step": "learned"},
    "static": {"plan": "first"},
    "static, step": {"plan": "first", "step": "learned"},
    "mixed": {"plan": "given", "step": "learned"},
}
"""Name → `data.plan`."""
