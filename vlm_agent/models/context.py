"""The context length of a language model."""

from transformers import PretrainedConfig


def context_of(config: PretrainedConfig) -> int | None:
    """`max_position_embeddings` of the language model, None if the configuration has none (T5 has relative positions).

    Longer inputs run without an error, and the model predicts worse.
    """
    return getattr(config.get_text_config(), "max_position_embeddings", None)
