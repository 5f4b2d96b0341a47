"""The smartphone assistant: a Llama+ViT that continues the trajectory's sentence with the next action."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedTokenizerBase

from vlm_agent.agents import Answer
from vlm_agent.episodes import Action, Episode, Step
from vlm_agent.models.build import RECIPE_FILE, load
from vlm_agent.models.llama_vit import LlamaViT
from vlm_agent.sentences import IGNORED, Sentence
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.training.recipe import read_recipe

MAX_ACTION_TOKENS = 64


@dataclass
class VlmAgent:
    """Greedy decoding. `remember` False makes it an agent without history: each step is its first.

    `bf16` runs in mixed precision: faster, and no longer bit-exact between whole trajectories and single steps.
    """

    model: LlamaViT
    tokenizer: PreTrainedTokenizerBase
    sentences: TrajectorySentences
    remember: bool = True
    bf16: bool = False

    @classmethod
    def from_run(cls, run: Path, bf16: bool = False) -> "VlmAgent":
        """The agent of a finished run."""
        recipe = read_recipe(run / RECIPE_FILE)
        model, tokenizer = load(run, merged=True)
        config = model.config
        language = recipe.action_language.build()
        sentences = TrajectorySentences(tokenizer, language, config.screen_size, config.tokens_per_screen)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return cls(model.to(device), tokenizer, sentences, bf16=bf16)

    def act(self, goal: str, history: Sequence[Step], screenshot: np.ndarray) -> Answer:
        now = Step(screenshot, Action.impossible())  # its action is unknown and not read
        steps = (*history, now) if self.remember else (now,)
        sentence = self.sentences.build(Episode("", "", goal, steps[:-1]))
        self.sentences.add_screen(sentence, now)
        cache = DynamicCache()
        with torch.inference_mode(), self._precision():
            logits = self._forward(sentence, cache, logits_to_keep=1)
            return self._answer(self._decode([int(logits[0, -1].argmax())], cache))

    def answer_episode(self, episode: Episode) -> list[Answer]:
        """What the agent says at each step when every earlier step went as demonstrated.

        With history, one forward pass over the whole trajectory: the gold history is given, so wherever greedy
        decoding agrees with the gold action it is known already, and only a step that leaves it decodes on, from the
        cache as it was at that token. The same tokens as `act` step by step.
        """
        with torch.inference_mode(), self._precision():
            if self.remember:
                return self._answer_sentence(self.sentences.build(episode))
            alone = (self.sentences.build(episode, number, number + 1) for number in range(len(episode)))
            return [answer for sentence in alone for answer in self._answer_sentence(sentence)]

    def _answer_sentence(self, sentence: Sentence) -> list[Answer]:
        labels = torch.tensor(sentence.labels)
        learned = torch.nonzero(labels != IGNORED).flatten()
        cache = DynamicCache()
        logits = self._forward(sentence, cache, logits_to_keep=learned - 1)
        greedy = dict(zip(learned.tolist(), logits[0].argmax(-1).tolist(), strict=True))
        answers = []
        # Backwards, because cutting the cache to an earlier step is free and restoring a later one is not.
        for start, end in reversed(_action_spans(sentence, self.tokenizer.eos_token_id)):
            end = min(end, start + MAX_ACTION_TOKENS)
            left = next((at for at in range(start, end) if greedy[at] != sentence.input_ids[at]), None)
            if left is None:
                answers.append(self._answer(sentence.input_ids[start:end]))
                continue
            cache.crop(left - cache.get_seq_length())
            said = [*sentence.input_ids[start:left], greedy[left]]
            answers.append(self._answer(self._decode(said, cache)))
        return answers[::-1]

    def _decode(self, said: list[int], cache: DynamicCache) -> list[int]:
        """Continue greedily from `said`, whose last token is not in the cache yet, to the end mark."""
        while said[-1] != self.tokenizer.eos_token_id and len(said) < MAX_ACTION_TOKENS:
            ids = torch.tensor([said[-1:]], device=self.model.device)
            output = self.model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            said = [*said, int(output.logits[0, -1].argmax())]
        return said

    def _forward(self, sentence: Sentence, cache: DynamicCache, logits_to_keep) -> torch.Tensor:
        device = self.model.device
        return self.model(
            input_ids=torch.tensor([sentence.input_ids], device=device),
            screens=torch.from_numpy(np.stack(sentence.screens)).to(device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=logits_to_keep,
        ).logits

    def _answer(self, said: list[int]) -> Answer:
        text = self.sentences.text(said)
        return Answer(text, self.sentences.language.parse(text))

    def _precision(self):
        return torch.autocast(self.model.device.type, torch.bfloat16, enabled=self.bf16)


def _action_spans(sentence: Sentence, end_mark: int) -> list[tuple[int, int]]:
    """(first, last + 1) of each action's tokens, end mark included."""
    spans, start = [], None
    for at, label in enumerate(sentence.labels):
        if label != IGNORED and start is None:
            start = at
        if label == end_mark:
            spans.append((start, at + 1))
            start = None
    return spans
