"""What the steps of agents that prompt a served model share: repaired replies, and screens that did not change."""
