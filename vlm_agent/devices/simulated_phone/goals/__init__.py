"""The goal templates, a file or two an AITW subset. Importing this package registers them all."""

from vlm_agent.devices.simulated_phone.goals import (
    general,
    google_apps,
    install,
    people,
    single,
    single_system,
    web_shopping,
)

__all__ = ["general", "google_apps", "install", "people", "single", "single_system", "web_shopping"]
