"""The configuration of an Auto-UI model."""

from typing import Any

from transformers import AutoConfig, PretrainedConfig, T5Config


class AutoUiConfig(PretrainedConfig):
    """`text_config`: the T5. `features`: the keys of `FeatureSettings`, `tokens` of a screen and `size` of each.

    `tie_word_embeddings`: whether the head is the table of embeddings. T5Config has a key of this name, which is True
    in every T5 of transformers 5; an old checkpoint's False becomes `scale_decoder_outputs: false` there.
    """

    model_type = "auto_ui"
    sub_configs = {"text_config": T5Config}  # noqa: RUF012 (transformers' own shape)

    def __init__(
        self,
        text_config: dict | T5Config | None = None,
        features: dict | None = None,
        tie_word_embeddings: bool = True,
        **kwargs: Any,
    ) -> None:
        self.text_config = T5Config(**text_config) if isinstance(text_config, dict) else text_config or T5Config()
        self.features = {} if features is None else dict(features)
        self.tie_word_embeddings = tie_word_embeddings
        super().__init__(**kwargs)

    @property
    def start_token_id(self) -> int:
        """The token before the first one of a target: T5's is padding."""
        start = getattr(self.text_config, "decoder_start_token_id", None)
        return self.pad_id if start is None else start

    @property
    def pad_id(self) -> int:
        pad = self.text_config.pad_token_id
        return 0 if pad is None else pad


AutoConfig.register(AutoUiConfig.model_type, AutoUiConfig)
