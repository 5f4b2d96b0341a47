"""Training of icon readers, apart from the training of agents:

python -m shipped_weights.icons --config shipped_weights/icons/phone_icons_tiny.yaml
"""
