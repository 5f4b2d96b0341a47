"""The modes, stages and figures of studies/d_pot/served."""
