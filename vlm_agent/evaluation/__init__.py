"""How good an agent is: verdicts, numbers, baselines, and the report that shows them.

`aitw_matcher` and `strict` decide whether an action is right; `predictions` is what a run leaves behind and what
everything else here is computed from; `metrics` counts, `baselines` says what needs no looking at the screen, `table`
and `report` show it.
"""
