"""The simulated phone for trainers of other projects, one file a project.

`import vlm_agent.environments` registers `vlm_agent/Phone-v0` where Gymnasium is installed.
"""

from importlib.util import find_spec

if find_spec("gymnasium") is not None:
    from vlm_agent.environments import gymnasium  # noqa: F401 (registers the environment)
