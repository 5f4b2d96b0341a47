"""Training of `phone_widgets_tiny`, apart from the training of agents:

python -m shipped_weights.widgets --config shipped_weights/widgets/phone_widgets_tiny.yaml
"""
