"""The four texts of Chain-of-Action-Thought for recorded steps, written by a vision-language model behind an endpoint.

`annotator.py` decides where each text comes from, `prompts.py` writes the requests from the files in `templates/`,
`action_texts.py` has the templates of action descriptions, `check.py` lists descriptions that contradict their action.
`job/` annotates a folder of shards, and `edits.py` stores what a person changes in a review.
"""
