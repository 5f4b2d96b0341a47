"""How good an agent is: verdicts, numbers, baselines, and the report that shows them.

`predictions` is what a run leaves behind and what everything else here is computed from. `aitw_matcher` and `strict`
decide whether an action is right, `dialects` by which published rule; `metrics` counts, `comparison` holds two runs
against each other, `baselines` says what needs no looking at the screen, `table`, `score_tables` and `report/` show it.
`online/` counts success on phones, `exam` what a model has learned from lessons.
"""
