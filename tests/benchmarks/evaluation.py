"""How fast a checkpoint answers recorded episodes: the engine against decoding every step by itself.

    python tests/benchmarks/evaluation.py [--quick] [--checkpoint runs/demo/agent]

The tiny model (recipes/llama_vit_tiny.yaml) answers episodes of 8 steps on simulated phones that it was not trained
on, once after a minute or two of training and once from random weights, which know nothing. All roads take the same
model, in float32, and the same episodes, `--batch` at a time:

    engine     one pass over the whole trajectories, then the branches that leave them (`VlmAgent.answer_episodes`)
    generate   step k of all episodes of the batch as one padded batch: their histories are read once, and transformers'
               own `generate` decodes greedily with its cache
    loop       the same, decoded by a bare loop without the checks that `generate` makes for every token

A road's time is its best of several rounds, taken in turn. The tokens of all roads are compared, every one.
The trained weights are kept in build/evaluation and made again when that is removed. Prints, last, one line of JSON;
`speedup` is against the faster of the other two.
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
from vlm_agent.datasets.simulate import simulate_episode
from vlm_agent.episodes import Episode
from vlm_agent.models.build import Vocabulary, build, build_tokenizer
from vlm_agent.models.family import processor_of
from vlm_agent.models.llama_vit.decoder import LlamaViTDecoder
from vlm_agent.models.llama_vit.family import collate
from vlm_agent.recipe.run import read_recipe
from vlm_agent.sentences import Sentence

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipes" / "llama_vit_tiny.yaml"
STEPS = 8


def main() -> None:
    options = parse()
    if options.quick:
        options.batch, options.batches, options.rounds, options.training_steps = 3, 1, 1, 5
    train = simulated("train", 10 if options.quick else 300)
    test = [cut(episode, STEPS) for episode in simulated("test", options.batch * options.batches, STEPS)]
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
            agent = trained_agent(train, steps, ROOT / "build" / "evaluation" / f"{len(train)}-{steps}.safetensors")
        figures[name] = measure(agent, test, options.batch, options.rounds)
        show(name, figures[name])
    print(json.dumps(figures))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="hardly trained, one small batch, one round: under a minute"
    )
    parser.add_argument("--batch", type=int, default=8, metavar="N", help="episodes at once (default 8)")
    parser.add_argument("--batches", type=int, default=2, metavar="N", help="how many of them (default 2)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="how often each road is taken (default 3)")
    parser.add_argument("--training-steps", type=int, default=250, metavar="N", help="episodes learned (default 250)")
    parser.add_argument(
        "--checkpoint", type=Path, metavar="RUN", help="take this run, the demo's say, as the trained one"
    )
    return parser.parse_args()


def simulated(split: str, count: int, length: int = 0) -> list[Episode]:
    """So many episodes of at least `length` steps."""
    every = (simulate_episode(seed, split)[0] for seed in itertools.count())
    return list(itertools.islice((episode for episode in every if len(episode) >= length), count))


def trained_agent(episodes: list[Episode], steps: int, weights: Path) -> VlmAgent:
    """The recipe's model after so many episodes, one after the other, in float32 and by AdamW."""
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
        learn(model, [sentences.build(episode) for episode in episodes], steps)
        weights.parent.mkdir(parents=True, exist_ok=True)
        save_model(model, weights)
    model.language_model.set_attn_implementation("sdpa")  # decoding needs masks of its own
    return VlmAgent(model.eval(), tokenizer, sentences)


def learn(model, sentences: list[Sentence], steps: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    began = time.perf_counter()
    for step in range(steps):
        row = collate([sentences[step % len(sentences)]])
        loss = model.train()(row["input_ids"], row["screens"], row["labels"]).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 25 == 0:
            print(f"training: step {step} of {steps}, loss {loss:.2f}, {time.perf_counter() - began:.0f} s", flush=True)


def measure(agent: VlmAgent, episodes: list[Episode], batch: int, rounds: int) -> dict:
    together = [episodes[start : start + batch] for start in range(0, len(episodes), batch)]
    seconds, tokens = {name: [] for name in ROADS}, {}
    for _ in range(rounds):
        for name, road in ROADS.items():
            road(agent, [cut(episodes[0], 2)])  # the first calls choose kernels and allocate
            began = time.perf_counter()
            with torch.inference_mode():
                answers = [step for some in together for episode in road(agent, some) for step in episode]
            seconds[name].append(time.perf_counter() - began)
            tokens[name] = [ids for ids, _ in answers]
            if name == "engine":
                settled = sum(by_prefill for _, by_prefill in answers) / len(answers)
    for name in ROADS:
        assert tokens[name] == tokens["engine"], f"{name} says other tokens than the engine"
    best = {name: min(times) for name, times in seconds.items()}
    return {
        "identical_tokens": True,
        "tokens": sum(map(len, tokens["engine"])),
        "share_settled": round(settled, 4),
        "steps_per_second": {name: round(len(tokens["engine"]) / time_, 2) for name, time_ in best.items()},
        "speedup": round(min(best["generate"], best["loop"]) / best["engine"], 2),
        "speedup_over_generate": round(best["generate"] / best["engine"], 2),
    }


Answers = list[list[tuple[list[int], bool]]]
"""[episode][step]: the tokens said, and whether the prefill alone gave them."""


def by_engine(agent: VlmAgent, episodes: list[Episode]) -> Answers:
    sentences = [agent.sentences.build(episode) for episode in episodes]
    limits = Limits(agent.tokenizer.eos_token_id, agent.sentences.language.max_tokens)
    (said,) = answer_sentences(LlamaViTDecoder(agent.model), sentences, limits, [most_likely])
    return [[(one.ids, one.from_prefill) for one in episode] for episode in said]


def by_generate(agent: VlmAgent, episodes: list[Episode]) -> Answers:
    def decode(embeddings, mask):
        said = agent.model.language_model.generate(
            inputs_embeds=embeddings,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=agent.sentences.language.max_tokens,
            eos_token_id=agent.tokenizer.eos_token_id,
            pad_token_id=agent.tokenizer.pad_token_id,
        )
        return said.tolist()

    return step_by_step(agent, episodes, decode)


def by_loop(agent: VlmAgent, episodes: list[Episode]) -> Answers:
    def decode(embeddings, mask):
        model, cache, said = agent.model, DynamicCache(), []
        given, places = {"inputs_embeds": embeddings}, (mask.cumsum(-1) - 1).clamp(min=0)
        ended = torch.zeros(len(embeddings), dtype=torch.bool)
        while len(said) < agent.sentences.language.max_tokens and not ended.all():
            read = model.language_model.model(
                **given, attention_mask=mask, position_ids=places, past_key_values=cache, use_cache=True
            )
            said.append(model.logits(read.last_hidden_state[:, -1]).argmax(-1))
            ended |= said[-1] == agent.tokenizer.eos_token_id
            given, places = {"input_ids": said[-1][:, None]}, places[:, -1:] + 1
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
        return torch.stack(said, dim=1).tolist()

    return step_by_step(agent, episodes, decode)


ROADS: dict[str, Callable[[VlmAgent, list[Episode]], Answers]] = {
    "engine": by_engine,
    "generate": by_generate,
    "loop": by_loop,
}


def step_by_step(agent: VlmAgent, episodes: list[Episode], decode: Callable) -> Answers:
    """Step k of all episodes as one batch, padded on the left, for every k."""
    answers = [[] for _ in episodes]
    for number in range(len(episodes[0])):
        sentences = [sentence_before(agent, episode, number) for episode in episodes]
        longest = max(len(sentence.input_ids) for sentence in sentences)
        padding = [longest - len(sentence.input_ids) for sentence in sentences]
        ids = [[0] * pad + sentence.input_ids for pad, sentence in zip(padding, sentences, strict=True)]
        screens = np.stack([screen for sentence in sentences for screen in sentence.screens])
        embeddings, _ = agent.model.embed(torch.tensor(ids), torch.from_numpy(screens))
        mask = (torch.arange(longest) >= torch.tensor(padding)[:, None]).long()
        for answer, said in zip(answers, decode(embeddings, mask), strict=True):
            answer.append((until_end(said, agent.tokenizer.eos_token_id), False))
    return answers


def sentence_before(agent: VlmAgent, episode: Episode, number: int) -> Sentence:
    """What an agent has read when the answer of step `number` is due."""
    sentence = agent.sentences.build(cut(episode, number))
    agent.sentences.add_screen(sentence, episode.steps[number])
    return sentence


def cut(episode: Episode, steps: int) -> Episode:
    return Episode(episode.id, episode.subset, episode.goal, episode.steps[:steps])


def until_end(said: list[int], end_mark: int) -> list[int]:
    return said[: said.index(end_mark) + 1] if end_mark in said else said


def show(name: str, figures: dict) -> None:
    table = Table(title=f"{name}: {figures['share_settled']:.0%} of steps settled by the prefill alone", box=None)
    for column in ("", "steps/s"):
        table.add_column(column, justify="right")
    for road, rate in figures["steps_per_second"].items():
        table.add_row(road, f"{rate:.1f}")
    Console().print(table, f"{figures['speedup']:.1f} times as fast as the faster of the others, the same tokens")


if __name__ == "__main__":
    main()
