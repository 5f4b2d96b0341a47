"""Llama+ViT: a vision encoder, a projector and a Llama language model."""
