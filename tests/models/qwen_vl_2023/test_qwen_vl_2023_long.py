"""Sentences beyond the trained length: dynamic NTK and log-n attention as published, however the history is read."""

import json

import pytest
import torch
from helpers import tiny
from helpers.agents.answer_ways import check_all_ways_agree
from helpers.models import families
from helpers.published import published_qwen_vl as published

from vlm_agent.agents.decoding.greedy import Limits, answer_sentences, answer_spans, decode_sentence, most_likely
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.models.decoding import ReadSentence
from vlm_agent.models.llama_vit.family import LLAMA_VIT
from vlm_agent.models.llama_vit.long_context import first_position
from vlm_agent.models.llama_vit.model import LlamaViT, LlamaViTConfig
from vlm_agent.models.qwen_vl_2023.convert import QWEN_VL_2023, our_configuration, read_configuration
from vlm_agent.sentences import SCREEN_TOKEN, Sentence

WEIGHTS = published.random_weights()
SCREEN = torch.randint(0, 256, (3, 448, 448), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
SHORT = published.TINY | {"seq_length": 280}
EPISODES = [tiny.episode(number, tiny.ACTIONS[: 2 + number]) for number in range(3)]


def ids_of(length: int) -> list[int]:
    """Text around a screen from token 2 on."""
    random = torch.randint(0, 500, (length,), generator=torch.Generator().manual_seed(length))
    return [*random[:2].tolist(), *[SCREEN_TOKEN] * 256, *random[258:].tolist()]


def expected(config: dict, ids: list[int], prompt: int = 0) -> torch.Tensor:
    return published.logits(WEIGHTS, config, [max(id_, 0) for id_ in ids], 2, SCREEN, prompt)


def converted(folder, config: dict) -> LlamaViT:
    QWEN_VL_2023.convert(published.write(folder / "published", WEIGHTS, config), folder / "ours", lambda file: None)
    return LLAMA_VIT.load(folder / "ours").eval()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return converted(tmp_path_factory.mktemp("long"), published.TINY)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    return converted(tmp_path_factory.mktemp("short"), SHORT)


def test_the_base_is_that_of_the_published_formula_at_every_length():
    for length in range(1, 32769):
        doublings = first_position(2048, length) >> 32
        assert 2 ** (doublings + 1) - 1 == published.ntk_alpha(published.FULL, length), length
    assert first_position(None, 1 << 20) == 0


@pytest.mark.parametrize("length", [600, 2049, 4100])
@torch.inference_mode()
def test_logits_of_long_sentences_are_those_of_the_published_arithmetic(model, length):
    ids = ids_of(length)
    ours = model(input_ids=torch.tensor([ids]), screens=SCREEN[None]).logits[0]
    torch.testing.assert_close(ours, expected(published.TINY, ids), rtol=0, atol=1e-4)


@torch.inference_mode()
def test_both_change_the_logits_and_each_can_be_off(short, tmp_path):
    ids, found = ids_of(600), []
    for number, off in enumerate([("use_dynamic_ntk",), ("use_logn_attn",), ("use_dynamic_ntk", "use_logn_attn")]):
        config = SHORT | dict.fromkeys(off, False)
        other = converted(tmp_path / str(number), config)
        found.append(other(input_ids=torch.tensor([ids]), screens=SCREEN[None]).logits[0])
        torch.testing.assert_close(found[-1], expected(config, ids), rtol=0, atol=3e-5)
    found.append(short(input_ids=torch.tensor([ids]), screens=SCREEN[None]).logits[0])
    assert all((one - other).abs().max() > 0.1 for at, one in enumerate(found) for other in found[:at])


@torch.inference_mode()
def test_packed_sentences_have_a_base_each(short):
    texts = [ids_of(900), ids_of(270), ids_of(281)]
    starts = torch.tensor([0, 900, 1170, 1451]).int().numpy()
    positions = torch.cat([torch.arange(len(text)) for text in texts])[None]
    row = torch.tensor([[id_ for text in texts for id_ in text]])
    screens = SCREEN.expand(3, -1, -1, -1)
    ours = short(input_ids=row, screens=screens, position_ids=positions, cu_seqlens=starts).logits[0]
    wanted = torch.cat([expected(SHORT, text) for text in texts])
    torch.testing.assert_close(ours, wanted, rtol=0, atol=3e-5)


@torch.inference_mode()
def test_decoded_tokens_keep_the_base_of_their_prompt(short):
    prompt, limits = Sentence(), Limits(end_mark=-5, max_tokens=5)
    ids = ids_of(557)  # the fourth decoded token is the 561st
    prompt.read(ids[:2])
    prompt.see(SCREEN.numpy(), 256)
    prompt.read(ids[258:])
    written: list[int] = []
    for _ in range(limits.max_tokens):
        written.append(int(expected(SHORT, ids + written, prompt=len(ids))[-1].argmax()))
    assert decode_sentence(LLAMA_VIT.decoder(short), prompt, most_likely, limits) == written


@torch.inference_mode()
def test_answers_of_one_prefill_are_those_of_the_published_arithmetic_for_each_prompt(short):
    """Every answer has the base of its own prompt, although the sentence is longer."""
    ids, starts, sentence, limits = ids_of(620), (265, 275, 300, 570), Sentence(), Limits(511, 3)
    sentence.read(ids[:2])
    sentence.see(SCREEN.numpy(), 256)
    for at in range(258, 620):
        (sentence.learn if any(start <= at < start + 3 for start in starts) else sentence.read)([ids[at]])
    for start in starts:
        sentence.input_ids[start + 2] = sentence.labels[start + 2] = ids[start + 2] = limits.end_mark
    found = answer_sentences(LLAMA_VIT.decoder(short), [sentence], limits, most_likely)[0]
    assert [start for start, _ in answer_spans(sentence, limits.end_mark)] == [*starts]
    for start, answer in zip(starts, found, strict=True):
        written: list[int] = []
        while not written or not limits.reached(written):
            written.append(int(expected(SHORT, ids[:start] + written, prompt=start)[-1].argmax()))
        assert answer.ids == written, start


@torch.inference_mode()
def test_a_growing_history_is_read_again_where_it_needs_another_base(short):
    ids, read, decoder = ids_of(620), ReadSentence(), LLAMA_VIT.decoder(short)
    unread = []
    for end in (265, 270, 300, 420, 570, 610, 290):
        prompt = Sentence()
        prompt.read(ids[:2])
        prompt.see(SCREEN.numpy(), 256)
        prompt.read(ids[258:end])
        prompt.screens = [SCREEN.numpy()] if not read.screens else read.screens
        rest = read.rest_of(prompt, decoder.first_position(end))
        unread.append(len(rest))
        logits = decoder.read_on([rest], [read])[0]
        torch.testing.assert_close(logits, expected(SHORT, ids[:end])[-1], rtol=0, atol=5e-5)
    assert unread == [265, 5, 300, 120, 570, 40, 290]


def sensitive_family() -> families.Family:
    """Its attention depends on positions much more than at random initialisation."""
    family = families.family(families.QWEN_VL_2023)
    with torch.no_grad():
        for layer in family.model.language_model.model.layers:
            layer.self_attn.q_proj.weight.mul_(30)
            layer.self_attn.k_proj.weight.mul_(30)
    return family


def test_one_prefill_and_phones_side_by_side_answer_as_step_by_step():
    family = sensitive_family()
    agent = VlmAgent(family.model, family.words, family.sentences, batch_tokens=1 << 20)
    check_all_ways_agree(agent, EPISODES)


def test_training_uses_neither_and_its_loss_is_that_of_a_model_without_them():
    family, plain = sensitive_family(), families.family(families.QWEN_VL_2023)
    config = LlamaViTConfig.from_dict(plain.model.config.to_dict() | {"ntk_length": None, "log_n_length": None})
    plain.model = LLAMA_VIT.prepare(LlamaViT(config))
    plain.model.load_state_dict(family.model.state_dict())
    row = family.row(*[family.sentences.build(episode) for episode in EPISODES])
    losses = {mode: [one.model.train(mode)(**row).loss.item() for one in (family, plain)] for mode in (True, False)}
    assert losses[True][0] == losses[True][1] == losses[False][1]
    assert abs(losses[False][0] - losses[False][1]) > 1e-4


@torch.inference_mode()
def test_a_saved_model_has_the_lengths_in_its_configuration_and_the_same_logits(short, tmp_path):
    ids = torch.tensor([ids_of(300)])
    before = short(input_ids=ids, screens=SCREEN[None]).logits
    short.save_pretrained(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    assert (content["ntk_length"], content["log_n_length"]) == (280, 280)
    assert torch.equal(LLAMA_VIT.load(tmp_path).eval()(input_ids=ids, screens=SCREEN[None]).logits, before)


def test_the_published_checkpoint_has_both_beyond_2048_tokens_and_other_models_neither(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(published.FULL))
    config = our_configuration(read_configuration(tmp_path / "config.json"), end=151643, dtype="bfloat16")
    assert (config.ntk_length, config.log_n_length) == (2048, 2048)
    other = tiny.model(100)
    assert (other.config.ntk_length, other.config.log_n_length) == (None, None)
    assert not any(hasattr(module, "scale_query") for module in other.modules())
