"""Evaluation: how good an agent is.

`offline/` lets an agent answer recorded episodes and writes `predictions`. From these, `scoring/` computes every score
and `report/` every table and picture. `online/` lets the agent do tasks on simulated phones. `benchmark` defines the
episodes and scorers, `about` which results may share an output folder.
"""
