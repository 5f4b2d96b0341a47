"""Acting: an agent's actions executed on a device, under guard."""
