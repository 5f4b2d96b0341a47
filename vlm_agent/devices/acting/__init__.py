"""Acting: rollouts of an agent on a device, with a guard that permits or refuses each action."""
