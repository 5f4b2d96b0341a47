"""Text models: plain causal language models, which read a screen as HTML (`sentences/html.py`)."""
