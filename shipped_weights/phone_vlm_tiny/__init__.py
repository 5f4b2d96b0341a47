"""Training of the embedded base `phone_vlm_tiny`: drawn screens, walks over simulated phones, lessons about both:

python -m shipped_weights.phone_vlm_tiny --config shipped_weights/phone_vlm_tiny/curriculum.yaml
"""
