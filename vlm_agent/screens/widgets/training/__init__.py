"""Training of `phone_widgets_tiny`, apart from the training of agents:

python -m vlm_agent.screens.widgets.training --config recipes/screens/phone_widgets_tiny.yaml
"""
