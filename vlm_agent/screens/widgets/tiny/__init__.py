"""`phone_widgets_tiny`: the widget detector that comes with the package. Its card is `weights/README.md`.

`vlm_agent.screens.widgets.training` trains it.
"""

from vlm_agent.screens.widgets.tiny.detector import SHA256, SHIPPED, PhoneWidgetsTiny

__all__ = ["SHA256", "SHIPPED", "PhoneWidgetsTiny"]
