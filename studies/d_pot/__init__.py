"""The arms and figures of studies/d_pot."""
