"""Auto-UI: a T5 whose encoded text attends to features of the screen, computed once by a frozen vision encoder.

Source: Zhang and Zhang, "You Only Look at Screens: Multimodal Chain-of-Action Agents", arXiv 2309.11436, section 3.2.
"""
