"""A merged text model is a plain checkpoint whose chat template writes the sentences of training."""

import json

import pytest
import torch
import transformers
import yaml
from helpers import tiny
from helpers.agents.chat_server import Reply, serving
from helpers.data.notes import with_plans
from helpers.models import tiny_text, tokenizers_of_all_kinds
from tokenizers import normalizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from vlm_agent.agents import demonstrated
from vlm_agent.agents.as_trained import trained_messages
from vlm_agent.agents.endpoint import EndpointSettings
from vlm_agent.agents.llm.client import ChatEndpoint
from vlm_agent.agents.serve_check import serve_check
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.episodes import Screen, recorded_screen
from vlm_agent.errors import UserError
from vlm_agent.models.build import save
from vlm_agent.models.run_layout import MODEL_FOLDER, RECIPE_FILE
from vlm_agent.models.text.family import LLAMA, html_chat_template
from vlm_agent.recipe.data import DataRecipe

EPISODES = [tiny_text.episode(number) for number in range(2)]
STEPS = [(episode, number) for episode in EPISODES for number in range(len(episode))]
WORDS = {
    "words": tiny_text.tokenizer,
    "byte level": tokenizers_of_all_kinds.byte_level,
    "NFC": lambda: tokenizers_of_all_kinds.normalising(normalizers.NFC()),
    "SentencePiece": tokenizers_of_all_kinds.sentencepiece,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A whole model with random weights, as a run."""
    folder = tmp_path_factory.mktemp("text") / "run"
    words = tiny_text.tokenizer()
    save(tiny_text.model(words), words, folder)
    content = tiny_text.recipe(folder, folder)
    (folder / RECIPE_FILE).write_text(yaml.safe_dump(content), encoding="utf-8")
    return folder


class Server:
    """Answers chat completions with what transformers' own classes load."""

    def __init__(self, checkpoint):
        self.model = AutoModelForCausalLM.from_pretrained(checkpoint).eval()
        self.words = AutoTokenizer.from_pretrained(checkpoint)

    def generate(self, messages, most):
        ids = self.words.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False, return_tensors="pt"
        )
        with torch.inference_mode():
            written = self.model.generate(ids, max_new_tokens=most)[0].tolist()
        return written[: ids.shape[1]], written[ids.shape[1] :]

    def answer(self, number, body):
        if "max_tokens" not in body:
            return Reply(b"not found", 404)
        read, written = self.generate(body["messages"], body["max_tokens"])
        usage = {"prompt_tokens": len(read), "completion_tokens": len(written)}
        message = {"role": "assistant", "content": self.words.decode(written, skip_special_tokens=True)}
        return Reply(json.dumps({"choices": [{"message": message}], "usage": usage}).encode())


@pytest.fixture(scope="module")
def server(run):
    return Server(run / MODEL_FOLDER)


@pytest.mark.parametrize("kind", WORDS)
@pytest.mark.parametrize(("episode", "number"), [(0, 0), (0, 4), (1, 2)])
def test_the_saved_template_has_the_ids_of_training_at_the_first_step_and_later(kind, episode, number, tmp_path):
    words = WORDS[kind]()
    sentences = tiny_text.processor().sentences(words, tiny_text.LANGUAGE)
    LLAMA.save_for_serving(tiny_text.model(words), words, tmp_path)
    episode = EPISODES[episode]
    history, screen = demonstrated(episode, number), episode.steps[number].screen
    messages = trained_messages(sentences, episode.goal, history, screen)
    written = AutoTokenizer.from_pretrained(tmp_path).apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    cut = type(episode)("e", "general", episode.goal, episode.steps[: number + 1])
    assert list(written) == sentences.prompt(cut).input_ids


@pytest.mark.parametrize("kind", WORDS)
@pytest.mark.parametrize("number", [0, 1, 4])
def test_the_saved_template_has_the_ids_of_training_with_earlier_steps_in_words_and_plans_too(kind, number, tmp_path):
    words, data = WORDS[kind](), DataRecipe(notes="d_pot_read", past_screens=0)
    sentences = tiny_text.processor().sentences(words, tiny_text.LANGUAGE, data)
    LLAMA.save_for_serving(tiny_text.model(words), words, tmp_path)
    episode = with_plans(EPISODES[0])
    messages = trained_messages(
        sentences, episode.goal, demonstrated(episode, number), recorded_screen(episode, number)
    )
    written = AutoTokenizer.from_pretrained(tmp_path).apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert list(written) == sentences.build_step(episode, number).input_ids[: len(written)]


def test_the_tokenizer_of_the_run_is_left_as_it_is(run):
    words = tiny_text.tokenizer()
    assert words.chat_template is None
    assert AutoTokenizer.from_pretrained(run / "tokenizer").chat_template is None
    assert AutoTokenizer.from_pretrained(run / MODEL_FOLDER).chat_template == html_chat_template(words)


def test_the_checkpoint_is_a_plain_llama_that_writes_our_agents_tokens(run, server):
    assert type(server.model) is transformers.LlamaForCausalLM
    config = json.loads((run / MODEL_FOLDER / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("llama", ["LlamaForCausalLM"])
    agent = VlmAgent.from_run(run)
    for episode, number in STEPS:
        history, screen = demonstrated(episode, number), episode.steps[number].screen
        ours = agent.act(episode.goal, history, screen)
        messages = trained_messages(agent.sentences, episode.goal, history, screen)
        read, written = server.generate(messages, agent.sentences.max_answer_tokens)
        assert (len(read), len(written)) == ours.usage.tokens
        assert agent.sentences.text(written) == ours.text


def test_an_endpoint_as_trained_has_the_runs_answers_and_serve_check_finds_no_difference(run, server):
    agent = VlmAgent.from_run(run)
    with serving(server.answer) as (url, _):
        served = EndpointSettings(endpoint=url, model="m", as_trained=str(run), calls=f"{run}_calls").load()
        answers = served.answer_episodes(EPISODES)
        check = serve_check(agent, ChatEndpoint(url, "m"), EPISODES, steps=4)
        with pytest.raises(UserError, match="reads the elements of the screen, and this source has none"):
            served.act("open settings", [], Screen(tiny.episode(0).steps[0].screenshot))
    expected = agent.answer_episodes(EPISODES)
    assert [[one.action for one in each] for each in answers] == [[one.action for one in each] for each in expected]
    assert (check.difference, check.steps, check.counted) == (None, 4, 4)


def test_decoding_is_greedy_and_ends_with_the_end_mark(run):
    generation = json.loads((run / MODEL_FOLDER / "generation_config.json").read_text())
    assert (generation["eos_token_id"], generation["do_sample"]) == (tiny_text.tokenizer().eos_token_id, False)
