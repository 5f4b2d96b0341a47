"""The training loop: transformers' Trainer with this project's stream, optimisers, figures and preemption."""
