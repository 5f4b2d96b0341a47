"""Auto-UI's model: T5's encoder, a fusion of its states with screen features, and T5's decoder on the result.

Equations 3 to 8 of the paper, as its published code implements them: the features are mapped linearly to the width of
the T5; attention with one head, whose queries are the encoded tokens and whose keys and values are the features; a gate
mixes both. With a single feature vector the softmax is 1, so every token attends to the same vector.
"""

from copy import deepcopy
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional
from transformers import AutoConfig, AutoModel, Cache, PretrainedConfig, PreTrainedModel, T5Config
from transformers.activations import ACT2FN
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.t5.modeling_t5 import T5ForConditionalGeneration, T5Stack

from vlm_agent.errors import CheckpointError
from vlm_agent.models.decoding import CACHE
from vlm_agent.models.loss import SupervisedOutput, supervise
from vlm_agent.models.weights.precision import seen_dtype
from vlm_agent.sentences import IGNORED


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


_SIZES = (
    *("vocab_size", "d_model", "d_kv", "d_ff", "num_heads", "num_layers", "num_decoder_layers"),
    *("relative_attention_num_buckets", "relative_attention_max_distance"),
)
"""Keys of a T5Config that must be positive."""


def check_text_config(config: T5Config, where: str) -> None:
    """Raises CheckpointError, which names `where` and the key, for a value that no T5 can have."""
    for key in _SIZES:
        if getattr(config, key) < 1:
            raise CheckpointError(f"{where}: {key} is {getattr(config, key)}; it must be at least 1")
    if config.dense_act_fn not in ACT2FN:
        raise CheckpointError(
            f"{where}: feed_forward_proj is {config.feed_forward_proj!r}, an unknown activation; it is usually relu or "
            "gated-gelu"
        )


class Attention(nn.Module):
    """Attention with one head: what `nn.MultiheadAttention` computes, from layers that LoRA and ZeRO-3 can wrap."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(width, width) for _ in range(4))
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            # As nn.MultiheadAttention initialises its one matrix (3 width, width).
            nn.init.xavier_uniform_(projection.weight, gain=0.5**0.5)
            nn.init.zeros_(projection.bias)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, queries: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """(B, L, width) and (B, K, width) to (B, L, width). `mask`: bool (B, K), None: all True."""
        attended = functional.scaled_dot_product_attention(
            self.q_proj(queries)[:, None] * queries.shape[-1] ** -0.5,  # first, as there: scores are rounded alike
            self.k_proj(values)[:, None],
            self.v_proj(values)[:, None],
            attn_mask=None if mask is None else mask[:, None, None],
            scale=1.0,
        )
        return self.out_proj(attended[:, 0])


class Fusion(nn.Module):
    """Mixes screen features into encoded text. Layers have their published names."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.image_dense = nn.Linear(size, width)
        self.mha_layer = Attention(width)
        self.gate_dense = nn.Linear(2 * width, width)

    def forward(self, text: torch.Tensor, features: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """(B, L, width), (B, K, size) to (B, L, width). `mask`: bool (B, K), which features are attended to.

        Computes in the dtype of its own weights, which train in float32 beside a frozen T5 in bfloat16.
        """
        dtype = seen_dtype(cast("nn.Parameter", self.image_dense.weight))
        own, seen = text.to(dtype), self.image_dense(features.to(dtype))
        attended = self.mha_layer(own, seen, mask)
        gate = torch.sigmoid(self.gate_dense(torch.cat([own, attended], dim=-1)))
        return ((1 - gate) * own + gate * attended).to(text.dtype)


class T5(nn.Module):
    """The parts of a `T5ForConditionalGeneration`: embeddings, two stacks and a head.

    The stacks have no embeddings of their own, so that each weight has one place that LoRA can adapt.
    """

    def __init__(self, config: T5Config, trained: T5ForConditionalGeneration | None = None) -> None:
        super().__init__()
        if trained is None:
            self.shared = nn.Embedding(config.vocab_size, config.d_model)
            self.encoder, self.decoder = T5Stack(_stack(config, False)), T5Stack(_stack(config, True))
            self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
            nn.init.normal_(self.shared.weight, std=config.initializer_factor)
            # Logits start as large as those of a tied head, whose input is scaled by this.
            nn.init.normal_(self.lm_head.weight, std=config.initializer_factor * config.d_model**-0.5)
        else:
            self.shared, self.lm_head = trained.shared, trained.lm_head
            self.encoder, self.decoder = trained.encoder, trained.decoder
        for stack in (self.encoder, self.decoder):
            stack.register_module("embed_tokens", None)


@torch.no_grad()
def prefer_near_tokens(stack: T5Stack) -> None:
    """Adds -slope × distance to the position biases of a stack from random weights, as in ALiBi (Press et al., 2022).

    The slope of head h is 4^-h, of the last head 0. T5's own biases start near 0, so a small model needs thousands of
    steps to learn the order of tokens: until then it repeats itself, and writes one coordinate of two.
    """
    attention = cast("Any", stack.block[0]).layer[0].SelfAttention
    furthest = attention.relative_attention_max_distance
    offsets = torch.arange(-furthest, 1 if attention.is_decoder else furthest + 1)
    buckets = attention._relative_position_bucket(
        offsets,
        bidirectional=not attention.is_decoder,
        num_buckets=attention.relative_attention_num_buckets,
        max_distance=furthest,
    )
    biases = attention.relative_attention_bias.weight
    is_in = (buckets[:, None] == torch.arange(len(biases))).float()
    distances = (offsets.abs()[:, None] * is_in).sum(0) / is_in.sum(0).clamp(min=1)
    slopes = torch.tensor([4.0**-head for head in range(biases.shape[1] - 1)] + [0.0])
    biases -= (distances[:, None] * slopes).to(biases)


class T5HeadApart(T5ForConditionalGeneration):
    """For checkpoints whose head is a matrix of its own, as FLAN's.

    transformers 5 ties the head of every T5, unless it finds both matrices in the checkpoint and they differ. Under
    ZeRO-3 it compares partitioned weights, which are empty, so it would tie them and lose the head.
    """

    _tied_weights_keys = {  # noqa: RUF012 (transformers' own shape)
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
    }

    def tie_weights(self, missing_keys: set[str] | None = None, recompute_mapping: bool = True) -> None:
        """Also ties the head where the checkpoint has none."""
        super().tie_weights(missing_keys, recompute_mapping)
        if missing_keys is not None and "lm_head.weight" in missing_keys:
            self.lm_head.weight = self.shared.weight
            missing_keys.discard("lm_head.weight")


def _stack(config: T5Config, is_decoder: bool) -> T5Config:
    own = deepcopy(config)
    own.is_decoder = is_decoder
    own.use_cache = False
    if is_decoder and config.num_decoder_layers is not None:
        own.num_layers = config.num_decoder_layers
    return own


class AutoUi(PreTrainedModel):
    """`parts`: the module path of each part that a recipe freezes, adapts or trains in full."""

    config_class = AutoUiConfig
    parts = {  # noqa: RUF012 (a constant)
        "projector": "fusion",
        "embeddings": "t5.shared",
        "language_model": "t5",
        "norm": "t5.decoder.final_layer_norm",
        "head": "t5.lm_head",
    }
    base_model_prefix = ""
    is_quantisable = False  # T5 casts states to the dtype of its weights, which is not a float's
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["T5Block"]  # noqa: RUF012 (transformers' own shape)
    _tied_weights_keys = {"t5.lm_head.weight": "t5.shared.weight"}  # noqa: RUF012 (transformers' own shape)

    def __init__(self, config: AutoUiConfig, t5: T5ForConditionalGeneration | None = None) -> None:
        """`t5`: trained weights; None: random ones."""
        super().__init__(config)
        self.notes: tuple[str, ...] = ()  # what a user should know about its initial weights
        self.words_of: str | None = None  # the trained model whose word embeddings it starts from
        self.t5 = T5(config.text_config, t5)
        self.fusion = Fusion(config.features["size"], config.text_config.d_model)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """The modules initialise themselves."""

    def get_input_embeddings(self) -> Any:
        return self.t5.shared

    def get_output_embeddings(self) -> Any:
        return self.t5.lm_head

    def encode(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        features: torch.Tensor,
        feature_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """`input_ids`, `attention_mask` int64 (B, L), `features` (B, K, size), `feature_mask` bool (B, K).

        transformers also takes an `attention_mask` of 4 dimensions, prepared for its layers.

        Returns (B, L, width).
        """
        encoded = self.t5.encoder(inputs_embeds=self.t5.shared(input_ids), attention_mask=attention_mask)
        return self.fusion(encoded.last_hidden_state, features, feature_mask)

    def decode(
        self, ids: torch.Tensor, encoded: torch.Tensor, attention_mask: torch.Tensor, cache: Cache | None = None
    ) -> torch.Tensor:
        """Hidden states (B, T, width) after the tokens `ids` int64 (B, T); the first ones of all is the start token.

        `attention_mask` int64 (B, L) is that of `encoded`. `cache` grows by T tokens.
        """
        return self.t5.decoder(
            inputs_embeds=self.t5.shared(ids),
            encoder_hidden_states=encoded,
            encoder_attention_mask=attention_mask,
            use_cache=cache is not None,
            **{CACHE: cache},
        ).last_hidden_state

    def shifted(self, labels: torch.Tensor) -> torch.Tensor:
        """What the decoder reads for the targets `labels` int64 (B, T): the start token, then all but the last."""
        start = labels.new_full((len(labels), 1), self.config.start_token_id)
        before = labels[:, :-1].masked_fill(labels[:, :-1] == IGNORED, self.config.pad_id)
        return torch.cat([start, before], dim=1)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        features: torch.Tensor,
        shift_labels: torch.Tensor,
        feature_mask: torch.Tensor | None = None,
        loss_weights: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | None = None,
        target_places: torch.Tensor | None = None,
    ) -> SupervisedOutput:
        """`shift_labels` int64 (B, T): the targets, `IGNORED` behind their ends. Other arguments as of `encode`.

        Logits exist at supervised positions only, flattened in reading order. `loss_weights` float (B, T) weighs the
        loss of each token. `num_items_in_batch`: the sum of the weights of all batches whose gradients are summed.
        `target_places`: `sentences.packing.target_places` of the labels, if known.
        """
        read = self.shifted(shift_labels)
        encoded = self.encode(input_ids, self._prepared(attention_mask, input_ids), features, feature_mask)
        hidden = self.decode(read, encoded, self._prepared(attention_mask, read))
        return supervise(
            hidden, shift_labels, self.logits, num_items_in_batch, loss_weights, shift=False, places=target_places
        )

    def _prepared(self, attention_mask: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """`attention_mask` int64 (B, L) for queries at `ids` int64 (B, T), as transformers prepares it for its layers.

        transformers would read back whether it is all True, once per stack.
        """
        dtype = seen_dtype(cast("nn.Parameter", self.t5.shared.weight))
        queries, keys = (torch.empty(*one.shape, 0, dtype=dtype, device=ids.device) for one in (ids, attention_mask))
        config = self.t5.encoder.config
        prepared = create_bidirectional_mask(
            config, queries, attention_mask, encoder_hidden_states=keys, allow_is_bidirectional_skip=False
        )
        return cast("torch.Tensor", prepared)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        text = self.config.text_config
        # A norm that trains returns float32.
        hidden = hidden.to(seen_dtype(cast("nn.Parameter", self.t5.lm_head.weight)))
        return self.t5.lm_head(hidden * text.d_model**-0.5 if text.scale_decoder_outputs else hidden)


AutoConfig.register(AutoUiConfig.model_type, AutoUiConfig)
AutoModel.register(AutoUiConfig, AutoUi)
