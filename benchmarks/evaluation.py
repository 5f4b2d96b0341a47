"""Steps per second of offline evaluation: one prefill per episode against decoding every step separately.

    python -m benchmarks.evaluation [--quick] [--checkpoint runs/demo/agent]

The tiny model (recipes/llama_vit_tiny.yaml) answers episodes of 8 steps on simulated phones that it was not trained
on, once after a minute or two of training and once with random weights. All methods use the same model, in float32, and
the same episodes in batches of `--batch`:

    engine     one prefill of whole trajectories, then batched decoding of the steps that deviate from the
               demonstration (`VlmAgent.answer_episodes`)
    generate   step k of all episodes as one padded batch: one prefill per step, then greedy decoding with `generate` of
               transformers and its cache
    loop       as `generate`, with a minimal decoding loop without its checks for every token

The methods are run alternately for several rounds, and the best round of each counts. All of their tokens must be
equal. The trained weights are cached in build/evaluation. The last line of output is JSON; `speedup` is relative to the
faster of `generate` and `loop`.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_model, save_model
from transformers import DynamicCache

from vlm_agent.agents.decoding.greedy import Limits, answer_sentences, most_likely
from vlm_agent.agents.vlm.agent import VlmAgent
from vlm_agent.episodes import Episode
from vlm_agent.models.build import Vocabulary, build, build_tokenizer
from vlm_agent.models.decoding import CACHE
from vlm_agent.models.family import processor_of
from vlm_agent.models.llama_vit.family import LlamaViTDecoder, collate
from vlm_agent.recipe.run import read_recipe
from vlm_agent.sentences import Sentence
from vlm_agent.simulator.demonstrations import simulate_episode

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "recipes" / "llama_vit_tiny.yaml"
STEPS = 8


def main() -> None:
    options = parse()
    if options.quick:
        options.batch, options.batches, options.rounds, options.training_steps = 3, 1, 1, 5
    train = simulated("train", 10 if options.quick else 300)
    test = [first_steps(episode, STEPS) for episode in simulated("test", options.batch * options.batches, STEPS)]
    figures = {
        "quick": options.quick,
        "batch": options.batch,
        "steps": STEPS * len(test),
        "training_steps": options.training_steps,
        "threads": torch.get_num_threads(),
    }
    for name, steps in {"random": 0, "trained": options.training_steps}.items():
        if steps and options.checkpoint is not None:
            agent, figures["training_steps"] = VlmAgent.from_run(options.checkpoint), None
        else:
            agent = make_agent(train, steps, ROOT / "build" / "evaluation" / f"{len(train)}-{steps}.safetensors")
        figures[name] = measure(agent, test, options.batch, options.rounds)
        show(name, figures[name])
    print(json.dumps(figures))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="little training, one small batch, one round: under a minute"
    )
    parser.add_argument("--batch", type=int, default=8, metavar="N", help="episodes per batch (default 8)")
    parser.add_argument("--batches", type=int, default=2, metavar="N", help="number of batches (default 2)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds per method (default 3)")
    parser.add_argument(
        "--training-steps", type=int, default=250, metavar="N", help="optimizer steps of one episode (default 250)"
    )
    parser.add_argument(
        "--checkpoint", type=Path, metavar="RUN", help="use this run, such as the demo's, as the trained model"
    )
    return parser.parse_args()


def simulated(split: str, count: int, length: int = 0) -> list[Episode]:
    """The first `count` simulated episodes of at least `length` steps."""
    every = (simulate_episode(seed, split)[0] for seed in itertools.count())
    return list(itertools.islice((episode for episode in every if len(episode) >= length), count))


def make_agent(episodes: list[Episode], steps: int, weights: Path) -> VlmAgent:
    """The recipe's model after `steps` AdamW steps of one episode each, in float32, cached in `weights`."""
    recipe = read_recipe(RECIPE)
    torch.manual_seed(0)
    texts = [text for episode in episodes for text in (episode.goal, *(step.action.text for step in episode.steps))]
    language = recipe.action_language.build()
    tokenizer = build_tokenizer(recipe.model, Vocabulary(language.vocabulary(), texts))
    model = build(recipe.model, tokenizer, language)
    sentences = processor_of(model.config).sentences(tokenizer, language)
    if weights.is_file():
        load_model(model, weights)
    elif steps:
        train_model(model, [sentences.build(episode) for episode in episodes], steps)
        weights.parent.mkdir(parents=True, exist_ok=True)
        save_model(model, weights)
    return VlmAgent(model.eval(), tokenizer, sentences)


def train_model(model, sentences: list[Sentence], steps: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    start = time.perf_counter()
    for step in range(steps):
        row = collate([sentences[step % len(sentences)]])
        loss = model.train()(row["input_ids"], row["screens"], row["labels"]).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 25 == 0:
            print(f"training: step {step} of {steps}, loss {loss:.2f}, {time.perf_counter() - start:.0f} s", flush=True)


def measure(agent: VlmAgent, episodes: list[Episode], batch: int, rounds: int) -> dict:
    batched = [episodes[first : first + batch] for first in range(0, len(episodes), batch)]
    seconds, tokens = {name: [] for name in METHODS}, {}
    for _ in range(rounds):
        for name, method in METHODS.items():
            method(agent, [first_steps(episodes[0], 2)])  # warm-up: kernels are chosen and memory is allocated
            start = time.perf_counter()
            with torch.inference_mode():
                answers = [step for part in batched for episode in method(agent, part) for step in episode]
            seconds[name].append(time.perf_counter() - start)
            tokens[name] = [ids for ids, _ in answers]
            if name == "engine":
                prefill_share = sum(from_prefill for _, from_prefill in answers) / len(answers)
    for name in METHODS:
        assert tokens[name] == tokens["engine"], f"the tokens of {name} differ from those of the engine"
    best = {name: min(times) for name, times in seconds.items()}
    return {
        "identical_tokens": True,
        "tokens": sum(map(len, tokens["engine"])),
        "share_settled": round(prefill_share, 4),
        "steps_per_second": {name: round(len(tokens["engine"]) / time_, 2) for name, time_ in best.items()},
        "speedup": round(min(best["generate"], best["loop"]) / best["engine"], 2),
        "speedup_over_generate": round(best["generate"] / best["engine"], 2),
    }


Answers = list[list[tuple[list[int], bool]]]
"""[episode][step]: the tokens of the answer, and whether all of them come from the prefill."""


def by_engine(agent: VlmAgent, episodes: list[Episode]) -> Answers:
    sentences = [agent.sentences.build(episode) for episode in episodes]
    limits = Limits(agent.tokenizer.eos_token_id, agent.sentences.language.max_tokens)
    answers = answer_sentences(LlamaViTDecoder(agent.model), sentences, limits, most_likely)
    return [[(one.ids, one.from_prefill) for one in episode] for episode in answers]


def by_generate(agent: VlmAgent, episodes: list[Episode]) -> Answers:
    def decode(embeddings, mask):
        tokens = agent.model.language_model.generate(
            inputs_embeds=embeddings,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=agent.sentences.language.max_tokens,
            eos_token_id=agent.tokenizer.eos_token_id,
            pad_token_id=agent.tokenizer.pad_token_id,
        )
        return tokens.tolist()

    return step_by_step(agent, episodes, decode)


def by_loop(agent: VlmAgent, episodes: list[Episode]) -> Answers:
    def decode(embeddings, mask):
        model, cache, tokens = agent.model, DynamicCache(), []
        inputs, positions = {"inputs_embeds": embeddings}, (mask.cumsum(-1) - 1).clamp(min=0)
        is_finished = torch.zeros(len(embeddings), dtype=torch.bool)
        while len(tokens) < agent.sentences.language.max_tokens and not is_finished.all():
            output = model.language_model.model(
                **inputs, attention_mask=mask, position_ids=positions, use_cache=True, **{CACHE: cache}
            )
            tokens.append(model.logits(output.last_hidden_state[:, -1]).argmax(-1))
            is_finished |= tokens[-1] == agent.tokenizer.eos_token_id
            inputs, positions = {"input_ids": tokens[-1][:, None]}, positions[:, -1:] + 1
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
        return torch.stack(tokens, dim=1).tolist()

    return step_by_step(agent, episodes, decode)


METHODS: dict[str, Callable[[VlmAgent, list[Episode]], Answers]] = {
    "engine": by_engine,
    "generate": by_generate,
    "loop": by_loop,
}


def step_by_step(agent: VlmAgent, episodes: list[Episode], decode: Callable) -> Answers:
    """For each k, decodes step k of all episodes as one batch, padded on the left."""
    answers = [[] for _ in episodes]
    for number in range(len(episodes[0])):
        sentences = [sentence_before(agent, episode, number) for episode in episodes]
        longest = max(len(sentence.input_ids) for sentence in sentences)
        padding = [longest - len(sentence.input_ids) for sentence in sentences]
        ids = [[0] * pad + sentence.input_ids for pad, sentence in zip(padding, sentences, strict=True)]
        screens = np.stack([screen for sentence in sentences for screen in sentence.screens])
        embeddings, _ = agent.model.embed(torch.tensor(ids), torch.from_numpy(screens))
        mask = (torch.arange(longest) >= torch.tensor(padding)[:, None]).long()
        for answer, tokens in zip(answers, decode(embeddings, mask), strict=True):
            answer.append((until_end(tokens, agent.tokenizer.eos_token_id), False))
    return answers


def sentence_before(agent: VlmAgent, episode: Episode, number: int) -> Sentence:
    """The prompt for step `number`: goal, earlier steps and current screen."""
    sentence = agent.sentences.build(first_steps(episode, number))
    agent.sentences.add_screen(sentence, episode.steps[number])
    return sentence


def first_steps(episode: Episode, steps: int) -> Episode:
    return Episode(episode.id, episode.subset, episode.goal, episode.steps[:steps])


def until_end(tokens: list[int], end_mark: int) -> list[int]:
    return tokens[: tokens.index(end_mark) + 1] if end_mark in tokens else tokens


def show(name: str, figures: dict) -> None:
    table = Table(title=f"{name}: {figures['share_settled']:.0%} of steps answered by the prefill alone", box=None)
    for column in ("", "steps/s"):
        table.add_column(column, justify="right")
    for method, rate in figures["steps_per_second"].items():
        table.add_row(method, f"{rate:.1f}")
    Console().print(
        table, f"{figures['speedup']:.1f} times as fast as the faster of generate and loop, with equal tokens"
    )


if __name__ == "__main__":
    main()
