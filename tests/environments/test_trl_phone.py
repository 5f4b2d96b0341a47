"""TRL's own trainer calls the phone's tools, with a scripted model, and takes one GRPO step on a tiny Qwen3-VL."""

import inspect
import json

import pytest
import torch
from helpers.models import tiny_qwen
from helpers.pages.environments import run_example
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

from vlm_agent.environments.play import LONGEST_TEXT, PlayError, Tasks
from vlm_agent.environments.trl import Phone
from vlm_agent.episodes import ACTION_NAMES, ActionKind

trl = pytest.importorskip("trl")

TASK = "general/train/7"
END, PAD, IMAGE, VIDEO = "<|im_end|>", "<|endoftext|>", "<|image_pad|>", "<|video_pad|>"
SPECIAL = [PAD, "<|im_start|>", END, "<|vision_start|>", "<|vision_end|>", IMAGE, VIDEO]


def call_of(action):
    """The tool and its arguments for an action."""

    def point(yx, x, y):
        return {x: round(1000 * yx[1]), y: round(1000 * yx[0])}

    if action.is_tap:
        return "tap", point(action.touch_yx, "x", "y")
    if action.is_swipe:
        return "swipe", point(action.touch_yx, "x", "y") | point(action.lift_yx, "to_x", "to_y")
    if action.kind is ActionKind.TYPE:
        return "type_text", {"text": action.text}
    return (action.name if action.is_status else f"press_{action.name}"), {}


def expert_calls(task):
    return [("look", {}), *map(call_of, Tasks().named(task).solution().actions)]


EARLY_END = [("look", {}), ("dance", {}), ("complete", {}), ("tap", {"x": 1, "y": 1})]


def written(call):
    name, arguments = call
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>{END}"


@pytest.fixture(scope="module")
def processor():
    """Qwen3-VL's processor with a byte-level tokenizer that learned its words from the tools."""
    from trl.chat_template_utils import qwen3_vl_chat_template

    words = Tokenizer(models.BPE())
    words.pre_tokenizer, words.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    texts = [qwen3_vl_chat_template, inspect.getsource(Phone), *map(written, expert_calls(TASK))]
    trainer = trainers.BpeTrainer(
        vocab_size=1000, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    words.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token=END, pad_token=PAD)
    sizes = {"patch_size": 4, "size": {"shortest_edge": 4 * 64, "longest_edge": 16 * 64}}
    return Qwen3VLProcessor(
        Qwen2VLImageProcessorPil(**sizes),
        tokenizer,
        Qwen3VLVideoProcessor(**sizes),
        chat_template=qwen3_vl_chat_template,
    )


@pytest.fixture(scope="module")
def model(processor):
    ids = {
        name: processor.tokenizer.convert_tokens_to_ids(token)
        for name, token in (("image_token_id", IMAGE), ("video_token_id", VIDEO), ("vision_start_token_id", SPECIAL[3]))
    }
    config = tiny_qwen.CONFIGS["qwen3_vl"]
    text = config["text_config"] | {"vocab_size": len(processor.tokenizer), "pad_token_id": 0}
    torch.manual_seed(0)
    return Qwen3VLForConditionalGeneration(Qwen3VLConfig(**(config | ids | {"text_config": text})))


@pytest.fixture
def scripted(model, processor, tmp_path, monkeypatch):
    """TRL's trainer with the tiny model, which writes the expert's calls in the first rollout of two, `EARLY_END` in
    the second, and then a text."""
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")

    class Scripted(trl.GRPOTrainer):
        def __init__(self, args, **options):
            super().__init__(**options | {"model": model, "args": args, "processing_class": processor})
            self.left, self.asking = None, [0, 1]

        def _generate_single_turn(self, *_, **__):
            if self.left is None:
                self.left = [expert_calls(self.environments[0]._play.task.name), list(EARLY_END)]
            texts = [written(self.left[one].pop(0)) if self.left[one] else f"Done.{END}" for one in self.asking]
            self.asking = [one for one, text in zip(self.asking, texts, strict=True) if "tool_call" in text]
            return [self._tokenizer.encode(text, add_special_tokens=False) for text in texts], None

    def config(folder, **options):
        small = {"max_steps": 1, "per_device_train_batch_size": 2, "num_generations": 2, "learning_rate": 1e-2}
        here = {"report_to": [], "use_cpu": True, "bf16": False, "save_strategy": "no", "disable_tqdm": True}
        return real_config(str(tmp_path), **options | small | here, gradient_checkpointing=False)

    real_config = trl.GRPOConfig
    monkeypatch.setattr(trl, "GRPOTrainer", Scripted)
    monkeypatch.setattr(trl, "GRPOConfig", config)


def test_trl_plays_the_expert_and_learns_from_the_difference_to_an_early_end(model, scripted):
    """The example of the page."""
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    trainer = run_example("TRL")["trainer"]
    assert [phone.get_reward() for phone in trainer.environments] == [1.0, 0.0]
    (logged,) = (row for row in trainer.state.log_history if "rewards/Phone/mean" in row)
    assert logged["rewards/Phone/mean"] == 0.5
    calls = len(expert_calls(trainer.environments[0]._play.task.name)) + len(EARLY_END)
    assert logged["tools/failure_frequency"] == pytest.approx(2 / calls)
    assert any(not torch.equal(one, before[name]) for name, one in model.named_parameters())


@pytest.fixture
def phone():
    phone = Phone()
    assert phone.reset(prompt="ignored", task=TASK) == Tasks().named(TASK).goal
    return phone


def test_every_action_is_a_tool_and_shows_the_next_screen(phone):
    tools = {name for name, _ in inspect.getmembers(Phone, inspect.isfunction) if not name.startswith("_")}
    assert len(tools - {"reset", "get_reward", "look"}) == len(ACTION_NAMES)
    (first,), (same,) = phone.look(), phone.look()
    assert first["type"] == "image" and first["image"].size == (208, 448) and same["image"] == first["image"]
    for act in (
        lambda: phone.tap(500, 500),
        lambda: phone.swipe(500, 800, 500, 200),
        lambda: phone.long_press(0, 1000),
        lambda: phone.type_text("coffee"),
        lambda: phone.open_app("Settings"),
        phone.press_back,
    ):
        (shown,) = act()
        assert shown["type"] == "image"
    assert phone.impossible() == [{"type": "text", "text": "The task has ended: impossible."}]
    assert phone.get_reward() == 0.0
    with pytest.raises(PlayError, match="has ended"):
        phone.press_home()


@pytest.mark.parametrize("value", [-1, 1001, float("nan"), "500", None, 10**400], ids=lambda value: str(value)[:5])
def test_a_wrong_point_changes_nothing_and_names_the_argument(phone, value):
    before = phone.look()
    with pytest.raises(PlayError, match="x is"):
        phone.tap(value, 500)
    assert phone.look()[0]["image"] == before[0]["image"]


@pytest.mark.parametrize("text", ["a" * (LONGEST_TEXT + 1), 7])
def test_a_wrong_text_is_refused(phone, text):
    with pytest.raises(PlayError, match="text"):
        phone.type_text(text)


def test_a_data_set_without_tasks_and_test_tasks_are_refused():
    for columns, message in (({"prompt": []}, "column `task`"), ({"task": "general/test/7"}, "allow_test")):
        with pytest.raises(PlayError, match=message):
            Phone().reset(**columns)
    with pytest.raises(PlayError, match="reset first"):
        Phone().look()
    assert Phone(allow_test=True).reset(task="general/test/7")
