"""Goal templates, one or two files per AITW subset. Importing this package registers all of them."""

from vlm_agent.simulator.goals import general, google_apps, install, people, single, single_system, web_shopping

__all__ = ["general", "google_apps", "install", "people", "single", "single_system", "web_shopping"]
