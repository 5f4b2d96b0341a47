"""Real weights from a GGUF file become a text model, and a plain checkpoint with the ids of training."""

import pytest
import torch
import transformers
from helpers.models import tiny_text
from helpers.published import real_weights

from vlm_agent.agents import demonstrated
from vlm_agent.agents.as_trained import trained_messages
from vlm_agent.models.build import Vocabulary, build, build_tokenizer
from vlm_agent.models.family import family_of, processor_of
from vlm_agent.recipe.model import ModelRecipe


@pytest.mark.slow
def test_smollm2_keeps_its_knowledge_and_is_served_with_the_ids_of_training(tmp_path):
    source = {"checkpoint": str(real_weights.smollm2()), "gguf_file": real_weights.GGUF}
    recipe = ModelRecipe(language_model=source)
    words = build_tokenizer(recipe, Vocabulary(tiny_text.LANGUAGE.vocabulary(), ()))
    model = build(recipe, words, tiny_text.LANGUAGE).eval()
    ids = torch.tensor([words("The capital of France is").input_ids])
    rounded = build(ModelRecipe(language_model=source, dtype="bfloat16"), words, tiny_text.LANGUAGE)
    assert rounded.dtype == torch.bfloat16
    assert torch.equal(rounded.model.rotary_emb.inv_freq, model.model.rotary_emb.inv_freq)  # positions stay exact
    model.set_attn_implementation("sdpa")
    logits = model(input_ids=ids).logits
    assert words.decode(logits[0, -1].argmax()) == " Paris"
    model.save_pretrained(tmp_path)
    family_of(model.config).save_for_serving(model, words, tmp_path)
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(plain) is transformers.LlamaForCausalLM
    torch.testing.assert_close(plain(ids).logits, logits)
    sentences, episode = processor_of(model.config).sentences(words, tiny_text.LANGUAGE), tiny_text.episode()
    messages = trained_messages(sentences, episode.goal, demonstrated(episode, 2), episode.steps[2].screen)
    served = transformers.AutoTokenizer.from_pretrained(tmp_path)
    written = served.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert list(written) == sentences.prompt(type(episode)("e", "", episode.goal, episode.steps[:3])).input_ids
