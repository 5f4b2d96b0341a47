"""The four texts of Chain-of-Action-Thought for recorded steps, written by a vision-language model behind an endpoint.

`action_texts.py` has the templates of action descriptions, `check.py` lists descriptions that contradict their action.
"""
