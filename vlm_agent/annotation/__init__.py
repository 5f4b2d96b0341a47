"""Texts for recorded steps, written by a model behind an endpoint: the notes of a step (`episodes.Notes`).

`annotator.py` decides where each text comes from and asks for a plan, and `prompts.py` writes the requests from
the files in `templates/`. `check.py` lists action descriptions and steps that contradict their action;
`vlm_agent/texts/actions.py` has the templates of descriptions. `job/` annotates a folder of shards. `review/` serves a
page to accept and edit texts, and `edits.py` stores the edits.
"""
