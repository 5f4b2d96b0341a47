"""`phone_widgets_tiny`: the widget detector that comes with the package. Its card is `weights/README.md`.

`shipped_weights.widgets` trains it.
"""

from vlm_agent.screens.widgets.tiny.detector import SHA256, SHIPPED, PhoneWidgetsTiny

__all__ = ["SHA256", "SHIPPED", "PhoneWidgetsTiny"]
