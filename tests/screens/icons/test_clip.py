"""`clip:FOLDER` and its contrastive fine-tuning, on a tiny CLIP with random weights."""

import json

import numpy as np
import pytest
import torch
import yaml
from helpers.screens.tiny_clip import write_clip
from safetensors.torch import load_file

from shipped_weights import loop
from shipped_weights.icons.__main__ import main
from shipped_weights.icons.clip import ClipTraining, Pairs, contrastive
from shipped_weights.icons.drawn import draw
from shipped_weights.icons.fonts import icons_of
from vlm_agent.errors import CheckpointError, UserError
from vlm_agent.screens.icons import MEANINGS, read_icons
from vlm_agent.screens.icons.clip import description, load

KEYS = {"reader": "clip", "sets": ["simulated_phone"], "batch_size": 16, "learning_rate": 3e-3, "log_steps": 1}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return write_clip(tmp_path_factory.mktemp("clip"))


def recipe(folder, start, steps, **changes):
    path = folder / "recipe.yaml"
    keys = {**KEYS, "start": str(start), "steps": steps, "output": str(folder / "run"), **changes}
    path.write_text(yaml.safe_dump(keys))
    return path


def test_a_clip_ranks_all_meanings_by_similarity(start):
    icon = icons_of(["simulated_phone"])[0]
    crop = draw(icon.mask, np.random.default_rng(0))
    guesses = read_icons(f"clip:{start}").read([crop, np.zeros((0, 3, 3), np.uint8)])
    clip = load(start)
    with torch.inference_mode():
        texts = clip.embed_texts(clip.tokens([description(name) for name in MEANINGS]))
        similarity = clip.embed_pictures(torch.from_numpy(clip.pixels(crop))[None]) @ texts.T
        expected = (clip.model.logit_scale.exp() * similarity).softmax(1)[0]
    assert guesses[0][0].name == list(MEANINGS)[int(expected.argmax())]
    assert guesses[0][0].score == pytest.approx(float(expected.max()), rel=1e-4)
    assert guesses[1] == ()


def test_embeddings_are_those_of_transformers(start):
    clip = load(start)
    tokens, pixels = clip.tokens(["a gear", "an arrow to the left"]), torch.rand(3, 3, 32, 32)
    with torch.inference_mode():
        theirs = clip.model.eval()(**tokens, pixel_values=pixels).logits_per_image
        ours = clip.model.logit_scale.exp() * clip.embed_pictures(pixels) @ clip.embed_texts(tokens).T
    assert torch.allclose(theirs, ours, atol=1e-5)


def test_descriptions_name_the_look_and_the_meaning():
    assert description("settings") == "an icon of a gear: settings"
    assert len({description(name) for name in MEANINGS}) == len(MEANINGS)


def test_the_contrastive_loss_is_that_of_clip():
    generator = torch.Generator().manual_seed(0)
    pictures, texts = (torch.nn.functional.normalize(torch.randn(4, 8, generator=generator)) for _ in range(2))
    scale = torch.tensor(5.0)
    expected = 0.0
    for i in range(4):
        rows = [float(scale * pictures[i] @ texts[j]) for j in range(4)]
        columns = [float(scale * pictures[j] @ texts[i]) for j in range(4)]
        expected += sum(np.log(np.sum(np.exp(all_))) - all_[i] for all_ in (rows, columns)) / 8
    assert float(contrastive(pictures, texts, scale)) == pytest.approx(expected, rel=1e-5)


def test_a_batch_holds_each_meaning_once(start):
    settings = ClipTraining(**{**KEYS, "start": str(start), "steps": 1, "output": "unused", "batch_size": 50})
    pixels, tokens = Pairs(icons_of(["simulated_phone"]), load(start), settings).at(0)
    assert pixels.shape == (50, 3, 32, 32)
    assert len({tuple(line) for line in tokens["input_ids"].tolist()}) == 50


def test_fine_tuning_lowers_the_loss_and_its_checkpoint_is_a_reader(start, tmp_path):
    config = recipe(tmp_path, start, 40)
    assert main(["--config", str(config)]) == 0
    losses = [json.loads(line)["loss"] for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])
    read_icons(f"clip:{tmp_path / 'run/model'}").read([np.zeros((9, 9, 3), np.uint8)])
    assert not any(path.suffix == ".bin" for path in (tmp_path / "run").rglob("*"))


def test_a_killed_fine_tuning_resumes_to_the_same_weights(start, tmp_path, monkeypatch):
    (tmp_path / "whole").mkdir()
    assert main(["--config", str(recipe(tmp_path / "whole", start, 4, save_steps=2))]) == 0
    config, real = recipe(tmp_path, start, 4, save_steps=2), loop._one_step

    def one_step(settings, state, loss_of):
        if state.step == 3:
            raise KeyboardInterrupt
        return real(settings, state, loss_of)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop, "_one_step", one_step)
        main(["--config", str(config)])
    assert main(["--config", str(config)]) == 0
    one, other = (load_file(folder / "run/model/model.safetensors") for folder in (tmp_path / "whole", tmp_path))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_folder_that_is_not_a_clip_is_named(start, tmp_path):
    with pytest.raises(UserError, match="clip needs a folder: clip:FOLDER"):
        read_icons("clip")
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read"):
        read_icons(f"clip:{tmp_path}")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(CheckpointError, match="holds a model of type 'bert'"):
        read_icons(f"clip:{tmp_path}")
    (tmp_path / "config.json").write_text((start / "config.json").read_text())
    (tmp_path / "pytorch_model.bin").write_bytes(b"not read")
    with pytest.raises(CheckpointError, match="cannot be loaded as a CLIP in safetensors"):
        read_icons(f"clip:{tmp_path}")


def test_a_batch_larger_than_the_meanings_is_refused(start, tmp_path, capsys):
    assert main(["--config", str(recipe(tmp_path, start, 1, batch_size=500))]) == 1
    assert f"batch_size must be at most {len(MEANINGS)}" in capsys.readouterr().err
