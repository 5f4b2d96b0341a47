"""Auto-UI's forward pass, its batches, and what is saved and loaded."""

import numpy as np
import pytest
import torch
from helpers import tiny
from helpers.models import tiny_auto_ui
from torch import nn

from vlm_agent.agents.decoding.greedy import Limits, answer_sources, decode_sentence, most_likely
from vlm_agent.errors import CheckpointError
from vlm_agent.models.auto_ui.family import AUTO_UI, AutoUiDecoder, collate
from vlm_agent.models.auto_ui.model import Attention, AutoUi
from vlm_agent.models.decoding import SourceDecoder
from vlm_agent.models.loss import NOT_FOR_MODELS
from vlm_agent.sentences import IGNORED, Sentence

WORDS = tiny.tokenizer()
both_heads = pytest.mark.parametrize("tied", [False, True], ids=["head apart", "head tied"])


def forward(model: AutoUi, sentences: list[Sentence]):
    batch = collate(sentences)
    return model(**{name: value for name, value in batch.items() if name not in NOT_FOR_MODELS})


def test_the_attention_is_that_of_torch_with_one_head():
    ours, theirs = Attention(8), nn.MultiheadAttention(8, 1, batch_first=True)
    projections = (ours.q_proj, ours.k_proj, ours.v_proj)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([one.weight for one in projections]))
        theirs.out_proj.load_state_dict(ours.out_proj.state_dict())
    queries, values = torch.randn(2, 5, 8), torch.randn(2, 3, 8)
    mask = torch.tensor([[True, True, True], [True, False, True]])
    for own, padding in ((None, None), (mask, ~mask)):
        expected, _ = theirs(queries, values, values, key_padding_mask=padding)
        assert torch.allclose(ours(queries, values, own), expected, atol=1e-6)


def test_a_single_vector_reaches_every_token_alike_and_patches_do_not():
    fusion = tiny_auto_ui.model(len(WORDS)).fusion
    text, features = torch.randn(1, 4, 16), torch.randn(1, 3, 6)
    seen = fusion.image_dense(features)
    pooled, patches = (fusion.mha_layer(text, some, None)[0] for some in (seen[:, :1], seen))
    assert torch.allclose(pooled, pooled[:1].expand_as(pooled), atol=1e-6)
    assert not torch.allclose(patches, patches[:1].expand_as(patches), atol=1e-3)


def test_a_batch_is_its_sentences_alone():
    model = tiny_auto_ui.model(len(WORDS))
    sentences = tiny_auto_ui.sentences(WORDS, 5, screens=(1, 3, 2))
    together = forward(model, sentences)
    alone = [forward(model, [one]) for one in sentences]
    assert torch.allclose(together.token_losses, torch.cat([one.token_losses for one in alone]), atol=1e-5)
    assert torch.allclose(together.logits, torch.cat([one.logits for one in alone]), atol=1e-4)
    counts = torch.tensor([one.supervised for one in sentences])
    weighted = torch.stack([one.loss for one in alone]) @ counts.float() / counts.sum()
    assert together.loss.item() == pytest.approx(weighted.item(), rel=1e-5)


def test_features_and_masks_reach_the_logits():
    model, sentences = tiny_auto_ui.model(len(WORDS)), tiny_auto_ui.sentences(WORDS, 2)
    before = forward(model, sentences).logits
    sentences[1].screens[0] = sentences[1].screens[0] + np.float16(1)
    after = forward(model, sentences).logits
    first = sentences[0].supervised
    assert torch.equal(before[:first], after[:first])
    assert not torch.allclose(before[first:], after[first:])


def test_a_batch_has_the_target_beside_the_outputs_and_plain_counts():
    sentences = tiny_auto_ui.sentences(WORDS, 3, screens=(1, 2))
    batch = collate(sentences)
    assert batch["features"].dtype == torch.float16
    assert batch["features"].shape == (3, 6, 6)
    assert batch["feature_mask"].tolist() == [[True] * 3 + [False] * 3, [True] * 6, [True] * 3 + [False] * 3]
    assert batch["feature_counts"] == [3, 6, 3]
    assert batch["attention_mask"].sum(1).tolist() == batch["source_lengths"]
    for row, sentence in enumerate(sentences):
        source, target = batch["source_lengths"][row], batch["target_lengths"][row]
        assert source + target == len(sentence)
        assert batch["input_ids"][row, :source].tolist() == sentence.input_ids[:source]
        labels = batch["shift_labels"][row]
        assert labels[:target].tolist() == sentence.input_ids[source:]
        assert (labels[target:] == IGNORED).all()
        assert batch["kinds"][row, :target].tolist() == sentence.kinds[source:]
        assert batch["roles"][row, :target].tolist() == sentence.roles[source:]
    assert "loss_weights" not in batch
    assert "feature_mask" not in collate(sentences[:1])


def test_a_target_token_that_is_not_learned_is_refused():
    sentence = tiny_auto_ui.sentence(WORDS, 0)
    sentence.read([3])
    with pytest.raises(ValueError, match="step 0: a token of the target has no label"):
        collate([sentence])


@both_heads
def test_a_saved_model_has_the_same_logits(tied, tmp_path):
    model, sentences = tiny_auto_ui.model(len(WORDS), tied), tiny_auto_ui.sentences(WORDS)
    assert (model.t5.lm_head.weight is model.t5.shared.weight) == tied
    assert model.config.text_config.scale_decoder_outputs == tied
    model.save_pretrained(tmp_path)
    loaded = AUTO_UI.load(tmp_path).eval()
    assert (loaded.t5.lm_head.weight is loaded.t5.shared.weight) == tied
    assert torch.equal(forward(loaded, sentences).logits, forward(model, sentences).logits)
    loaded.save_pretrained(tmp_path / "again")
    again = AUTO_UI.load(tmp_path / "again").eval()
    assert torch.equal(forward(again, sentences).logits, forward(model, sentences).logits)


def test_a_folder_without_the_fusion_is_refused_in_one_line(tmp_path):
    model = tiny_auto_ui.model(len(WORDS))
    state = {name: value for name, value in model.state_dict().items() if not name.startswith("fusion.")}
    model.save_pretrained(tmp_path, state_dict=state)
    with pytest.raises(
        CheckpointError, match=r"lacks 12 of the model's weights, fusion.gate_dense.bias first"
    ) as error:
        AUTO_UI.load(tmp_path)
    assert "\n" not in str(error.value)


def test_float16_is_refused(tmp_path):
    tiny_auto_ui.model(len(WORDS)).half().save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="float16, in which T5's activations overflow"):
        AUTO_UI.load(tmp_path)


@both_heads
def test_decoding_token_by_token_gives_the_logits_of_training(tied):
    model, sentences = tiny_auto_ui.model(len(WORDS), tied), tiny_auto_ui.sentences(WORDS, 4, screens=(2, 1))
    batch = collate(sentences)
    targets, lengths = batch["shift_labels"], batch["target_lengths"]
    with torch.inference_mode():
        expected = forward(model, sentences).logits.split(lengths)
        decoder = AutoUiDecoder(model)
        assert isinstance(decoder, SourceDecoder)
        state = decoder.begin_batch([source_of(one) for one in sentences])
        rows = [state.logits, *(decoder.step_batch(step, state) for step in targets[:, :-1].clamp(min=0).T)]
    found = torch.stack(rows, dim=1)
    for row, (length, logits) in enumerate(zip(lengths, expected, strict=True)):
        assert torch.allclose(found[row, :length], logits, atol=1e-4)


def source_of(sentence: Sentence) -> Sentence:
    source = sentence.prefix(sentence.prompt_length)
    source.screens = sentence.screens
    return source


def test_sources_decoded_together_have_the_answers_of_each_alone():
    model = tiny_auto_ui.model(len(WORDS))
    with torch.no_grad():
        for weights in model.parameters():  # smaller ones write one token for ever
            weights.normal_(std=0.6)
    decoder = AutoUiDecoder(model)
    sources = [tiny_auto_ui.sentence(WORDS, number, 1 + number % 2, target=False) for number in range(6)]
    with torch.inference_mode():
        free = answer_sources(decoder, sources, most_likely, Limits(WORDS.eos_token_id, 10))
        lengths = set()
        for mark in {token for ids in free for token in ids}:  # some answers end early, and their rows are dropped
            limits = Limits(mark, 10)
            together = answer_sources(decoder, sources, most_likely, limits)
            assert together == [decode_sentence(decoder, one, most_likely, limits) for one in sources]
            lengths |= {len(ids) for ids in together}
    assert len(lengths) > 2


def test_gradient_checkpointing_changes_no_gradient():
    model, sentences = tiny_auto_ui.model(len(WORDS)).train(), tiny_auto_ui.sentences(WORDS)
    forward(model, sentences).loss.backward()
    plain = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    model.gradient_checkpointing_enable()
    forward(model, sentences).loss.backward()
    assert all(torch.allclose(weight.grad, plain[name], atol=1e-6) for name, weight in model.named_parameters())
    assert all(weight.abs().sum() > 0 for weight in plain.values())


def test_bfloat16_autocast_is_near_float32():
    model, sentences = tiny_auto_ui.model(len(WORDS)), tiny_auto_ui.sentences(WORDS)
    exact = forward(model, sentences).loss.item()
    with torch.autocast("cpu", torch.bfloat16):
        assert forward(model, sentences).loss.item() == pytest.approx(exact, rel=0.02)
