"""LLaVA 1.5: a CLIP vision tower, an MLP and a Llama language model."""
