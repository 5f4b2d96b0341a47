"""The four texts of Chain-of-Action-Thought for recorded steps, written by a vision-language model behind an endpoint.

`annotator.py` decides where each text comes from, `prompts.py` writes the requests from the files in `templates/`,
`check.py` lists action descriptions that contradict their action; `vlm_agent/texts/actions.py` has their templates.
`job/` annotates a folder of shards. `review/` serves a page to accept and edit texts, and `edits.py` stores the edits.
"""
