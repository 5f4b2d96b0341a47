"""Screens as HTML in a run: their tokens, from columns alone."""

from vlm_agent.training.data.html.lengths import html_lengths

__all__ = ["html_lengths"]
