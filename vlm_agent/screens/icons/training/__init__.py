"""Training of icon readers, apart from the training of agents:

python -m vlm_agent.screens.icons.training --config recipes/screens/phone_icons_tiny.yaml
"""
