"""Evaluation: how good an agent is.

`offline/` has an agent answer recorded episodes and writes `predictions`, from which `scoring/` computes every score
and `report/` every table and picture. `online/` has it do tasks on simulated phones. `benchmark` defines episodes and
scorers, `identity` which results may share an output folder.
"""
