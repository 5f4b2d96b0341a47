"""The peer: multi-turn SFT of the same Qwen2.5-VL on the same episodes with TRL's SFTTrainer, in its own environment.

The settings are the fastest that TRL supports: whole conversations (each history is processed once), loss on assistant
tokens only, no gradient checkpointing, its own collator, images in memory. TRL neither packs images nor omits padding.
It computes logits only at labels on a GPU and at all positions on a CPU; `--labels-only` does the former on a CPU.
"""

import json
import sys
from pathlib import Path

import torch

# The registry's torchvision is built for CUDA and does not import beside a CPU torch; nothing here calls these two.
if torch.version.cuda is None:
    fragment = torch.library.Library("torchvision", "FRAGMENT")
    fragment.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    fragment.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import trl.trainer.utils
from datasets import Dataset
from PIL import Image
from transformers import Qwen2_5_VLProcessor, TrainerCallback
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from trl import SFTConfig, SFTTrainer

from benchmarks.training.episodes import read_rows
from benchmarks.training.measure import (
    BETAS,
    LEARNING_RATE,
    MAX_GRAD_NORM,
    WEIGHT_DECAY,
    Clock,
    make_parser,
    peak_resident,
    save_gradients,
)
from benchmarks.training.models import build, timed_modules
from benchmarks.training.shapes import Shape, shape_named
from benchmarks.training.stopwatch import Stopwatch
from benchmarks.training.words import read_tokenizer, special_ids


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--system", required=True, help="the words of the system's turn")
    parser.add_argument("--labels-only", action="store_true", help="logits where there is a label, as on a GPU")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.labels_only:
        trl.trainer.utils._use_triton = lambda device: True
    shape = shape_named(options.shape, options.vocabulary)
    tokenizer = read_tokenizer(options.data / "tokenizer")
    model = build(shape, special_ids(tokenizer))
    held = peak_resident()
    watching = Watching(model, shape, options.gradients)
    rows = conversations(options.data, shape.batch, options.steps, options.system)
    trainer = SFTTrainer(
        model=model,
        args=settings(shape, options.steps, options.data),
        train_dataset=rows,
        processing_class=processor(tokenizer, shape),
        callbacks=[watching],
    )
    trainer.train()
    done = {"losses": [line["loss"] for line in trainer.state.log_history if "loss" in line][1:]}
    done |= {"actions": watching.actions, "parts": dict(watching.stopwatch.seconds), "peak_bytes": peak_resident()}
    print(json.dumps(vars(watching.clock) | done | {"model_bytes": held}))


def settings(shape: Shape, steps: int, folder: Path) -> SFTConfig:
    """The first step's learning rate is 0, as on the other roads."""
    return SFTConfig(
        output_dir=str(folder / "trl"),
        per_device_train_batch_size=shape.batch,
        max_steps=steps + 1,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=1,
        weight_decay=WEIGHT_DECAY,
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        max_grad_norm=MAX_GRAD_NORM,
        max_length=None,
        assistant_only_loss=True,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        train_sampling_strategy="sequential",
        remove_unused_columns=False,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )


def conversations(folder: Path, batch: int, steps: int, system: str) -> Dataset:
    """`batch` one-step episodes for the first step; the rest whole, one step's more than are read, because the loader
    fetches ahead."""
    episodes = read_rows(folder)
    first = [(at, 1) for at in range(batch)]
    rest = [(at % len(episodes), len(episodes[0][1])) for at in range(batch * (steps + 1))]
    plan = Dataset.from_list([{"episode": at, "steps": length} for at, length in first + rest])

    def conversation(chosen: dict[str, list[int]]) -> dict[str, list]:
        pairs = zip(chosen["episode"], chosen["steps"], strict=True)
        samples = [(messages(*episodes[at], length, system), pictures(episodes[at][1], length)) for at, length in pairs]
        return {"messages": [turns for turns, _ in samples], "images": [images for _, images in samples]}

    return plan.with_transform(conversation)


def messages(row: dict, screens, length: int, system: str) -> list[dict]:
    """The goal and every screen are the user's, every action the assistant's."""
    turns = [{"role": "system", "content": [{"type": "text", "text": system}]}]
    for number, action in enumerate(row["actions"][:length]):
        goal = [{"type": "text", "text": f"Goal: {row['goal']}\n"}] if number == 0 else []
        turns.append({"role": "user", "content": [*goal, {"type": "image"}]})
        turns.append({"role": "assistant", "content": [{"type": "text", "text": action}]})
    return turns


def pictures(screens, length: int) -> list[Image.Image]:
    return [Image.fromarray(screen) for screen in screens[:length]]


def processor(tokenizer, shape: Shape) -> Qwen2_5_VLProcessor:
    pixels = shape.screen[0] * shape.screen[1]
    size = {"shortest_edge": pixels, "longest_edge": pixels}
    eyes = Qwen2VLImageProcessor(size=size, patch_size=14, merge_size=2, temporal_patch_size=2)
    tokenizer.image_token, tokenizer.video_token = "<|image_pad|>", "<|video_pad|>"
    return Qwen2_5_VLProcessor(eyes, tokenizer, Qwen2VLVideoProcessor(), chat_template=tokenizer.chat_template)


class Watching(TrainerCallback):
    """Runs the clock from the end of the first step to the end of the last; saves the gradients of the second."""

    def __init__(self, model, shape: Shape, gradients: Path):
        self.model, self.shape, self.gradients = model, shape, gradients
        self.clock, self.stopwatch, self.actions = Clock(), Stopwatch(), 0
        self.stopwatch.watch(model, *timed_modules(model, shape))
        model.register_forward_pre_hook(self._count, with_kwargs=True)

    def _count(self, module, inputs, batch) -> None:
        ends = batch["labels"] == self.model.get_base_model().config.get_text_config().eos_token_id
        self.actions += int(ends.sum())

    def on_pre_optimizer_step(self, args, state, control, **_):
        self.stopwatch.lap("decoder")
        if state.global_step == 1:
            self.clock.__exit__()
            save_gradients(self.model, self.gradients)
            self.clock.__enter__()
            self.stopwatch.skip()

    def on_step_end(self, args, state, control, **_):
        self.stopwatch.lap("update")
        if state.global_step == 1:
            self.stopwatch.restart()
            self.actions = 0
            self.clock.__enter__()
        if state.global_step == state.max_steps:
            self.clock.__exit__()


if __name__ == "__main__":
    sys.exit(main())
