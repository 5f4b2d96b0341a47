"""Acting: executes an agent's actions on a device; a guard permits or refuses each action."""
