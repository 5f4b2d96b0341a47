"""Train vision-language models into agents that operate phones from screenshots, and score them."""

__version__ = "0.1.0"
