"""A vision-language model behind an OpenAI-compatible chat endpoint, as an agent.

    system     the task, and the action language
    user       the goal, older actions as text, and the oldest screen shown
    assistant  the action executed on that screen
    user       the next screen
    …
    user       the current screen

The action language decodes the answer after leading and trailing white space is removed, and a reasoning model's
`<think>…</think>` before it.

With `prompt`, the messages are those of the user's own file instead (`llm/users_prompt.py`).

With `as_trained`, a model fine-tuned by a run is prompted with the turns of its training instead (`as_trained.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from vlm_agent.action_languages import ActionLanguage, ChosenLanguage, LanguageSettings, default_settings
from vlm_agent.agents.agent import NOT_PERFORMED, Agent, Answer, Diagnostics, Turn, Usage, demonstrated
from vlm_agent.agents.as_trained import trained_messages
from vlm_agent.agents.controls import CONTROLS, controlled
from vlm_agent.agents.llm.client import CallError
from vlm_agent.agents.llm.cost import Expense, estimated_tokens, text_tokens
from vlm_agent.agents.llm.prompted import ServedAgent, ServedSettings
from vlm_agent.agents.llm.prompts import assistant, pixels_of, system, user
from vlm_agent.agents.llm.users_prompt import UsersPrompt
from vlm_agent.agents.of_run import RECORDED_NOTE, grey_screens_of, recipe_of, run_of, text_inputs_of, text_notes_of
from vlm_agent.episodes import Episode, Screen, recorded_screen
from vlm_agent.errors import UserError
from vlm_agent.recipe.data import IN_TURNS
from vlm_agent.recipe.run import Recipe
from vlm_agent.sentences.notes import NO_REFERENCES, UsedNotes
from vlm_agent.sentences.trajectory import TrajectorySentences
from vlm_agent.texts.lines import in_fence, one_line

_TASK = (
    "You operate a phone to reach a goal. You see its screen and do one action at a time; the next screen shows what "
    "came of it. "
)


@dataclass(frozen=True)
class EndpointAgent(ServedAgent):
    """`past_screens`: the number of earlier screens in the prompt; older actions are written as text.

    `max_tokens`: limit of an answer; a truncated answer is decoded like any other. `sentences`: builds the prompt with
    the training turns of a run; None: the prompt of this module. `code_fences`: of an answer that is one markdown code
    fence, the content is decoded. `prompt`: the user's; None: the prompt of this module.
    """

    language: ActionLanguage
    past_screens: int = 2
    max_tokens: int = 128
    sentences: TrajectorySentences | None = None
    code_fences: bool = False
    prompt: UsersPrompt | None = None

    def act(self, goal: str, history: Sequence[Turn], screen: Screen) -> Answer:
        """The answer has `failed` if the call failed. Raises EndpointError if the endpoint cannot be used at all."""
        messages = self.messages(goal, history, screen)
        try:
            completion = self.calls.completion(messages, self.max_tokens)
        except CallError as error:
            return Answer("", None, failed=str(error))
        read, written = completion.tokens or (None, None)
        usage = Usage(read, written, completion.calls, completion.seconds)
        # A run's own answer is read as in training, where no reasoning precedes it.
        answer = completion.answer if self.sentences is None else completion.text
        content = in_fence(answer) if self.code_fences else None
        text = answer if content is None else content
        # A fine-tuned model writes an action without surrounding white space.
        notes, words = ({}, text.strip()) if self.sentences is None else self.sentences.notes.split(text)
        action, box = self.language.decode(words, screen), self.language.predicted_box(words, screen)
        fenced = content is not None and action is not None
        references = NO_REFERENCES if self.sentences is None else self.sentences.references
        return Answer(
            completion.text,
            action,
            notes,
            box=box,
            usage=usage,
            diagnostics=Diagnostics(
                reference_has_goal=references.has_goal(goal, screen.episode),
                fenced=fenced,
                seconds_on_disk=completion.seconds_on_disk,
                replies=(completion.notes,),
            ),
        )

    def without_sight(self) -> "EndpointAgent | None":
        """The agent of a text model with an empty screen in place of each; None for a model that sees pixels."""
        if self.sentences is None or not self.sentences.as_html:
            return None
        return replace(self, sentences=replace(self.sentences, grey=True))

    def expected(self, episodes: Sequence[Episode]) -> Expense:
        calls = Expense()
        for episode in episodes:
            for number, step in enumerate(episode.steps):
                screen = recorded_screen(episode, number)
                messages = self.messages(episode.goal, demonstrated(episode, number), screen)
                calls += Expense(1, estimated_tokens(messages), text_tokens(self.language.encode(step.action, screen)))
        return calls

    def messages(self, goal: str, history: Sequence[Turn], screen: Screen) -> list[dict[str, Any]]:
        """The messages of the chat up to the current screen."""
        if self.sentences is not None:
            return trained_messages(self.sentences, goal, history, screen)
        if self.prompt is not None:
            return self.prompt.messages(goal, history, screen, self.past_screens, self.language)
        older = max(len(history) - self.past_screens, 0)
        opening = f"Goal: {one_line(goal)}\n" + "".join(
            f"Action {number}: {self._text(turn)}\n{_failure(turn)}" for number, turn in enumerate(history[:older], 1)
        )
        messages = [system(_TASK + self.language.instructions)]
        for number, turn in enumerate(history[older:], older + 1):
            messages.append(_screen_message(opening, number, turn.screen))
            messages.append(assistant(self._text(turn)))
            opening = _failure(turn)
        return [*messages, _screen_message(opening, len(history) + 1, screen)]

    def _text(self, turn: Turn) -> str:
        return self.language.encode(turn.action, turn.screen)


def _failure(turn: Turn) -> str:
    """A line after an action that failed, else nothing."""
    return f"(Last action: {NOT_PERFORMED}.)\n" if turn.failed else ""


def _screen_message(opening: str, number: int, screen: Screen) -> dict[str, Any]:
    return user(f"{opening}Screen {number}:", [pixels_of(screen)])


class EndpointSettings(ServedSettings):
    """`action_language`: one that does not write numbers of elements, which these prompts do not show. `past_screens`:
    the number of earlier screens in the prompt. `max_tokens`: limit of an answer.

    `as_trained`: the run folder of the served model. The messages are then the turns of its training, with all earlier
    screens; action language, limit of an answer and control are those of the run.

    `code_fences`: an answer that is one markdown code fence is read as its content, and counted apart. Off by default,
    as in the published evaluations.

    `prompt`: YAML file of the user's own prompt, with the keys system and user and the placeholders of
    `llm/users_prompt.py`. Released agents need theirs.

    With `as_trained`, a reply in `calls` is that of the run's weights, whatever the name of the model.
    """

    agent: str = "endpoint"
    action_language: ChosenLanguage = Field(default_factory=default_settings)
    past_screens: NonNegativeInt = 2
    max_tokens: PositiveInt = 128
    as_trained: str | None = None
    code_fences: bool = False
    prompt: str | None = None

    @model_validator(mode="after")
    def _fits_the_model(self) -> Self:
        of_run = ("action_language", "past_screens", "max_tokens", "prompt")
        fixed = [key for key in of_run if key in self.model_fields_set]
        if self.as_trained is not None and fixed:
            raise ValueError(f"remove {fixed[0]}; with as_trained it is that of the run")
        if self.as_trained is None and self.action_language.build().needs_elements:
            raise ValueError(
                f"action_language {self.action_language.name} writes numbers of elements, which the prompts of this "
                "agent do not show; use agent: dynamic_planning with mode: none, which shows them, or another language"
            )
        return self

    @property
    def display_name(self) -> str:
        return f"{self.model} at {self.endpoint}"

    @property
    def run_label(self) -> str:
        return self.model

    @property
    def language(self) -> LanguageSettings:
        return self.action_language if self.as_trained is None else self._recipe.action_language

    @property
    def text_inputs(self) -> tuple[str, ...]:
        if self.as_trained is not None:
            return text_inputs_of(self._recipe.data)
        return ("action",) if "steps" in self._prompt_names else ()

    @property
    def text_notes(self) -> dict[str, str]:
        if self.as_trained is not None:
            return text_notes_of(self._recipe.data)
        return {"instructions": RECORDED_NOTE} if "instruction" in self._prompt_names else {}

    @property
    def reads_elements(self) -> bool:
        if self.as_trained is not None and UsedNotes(self._recipe.data.notes).reads_elements:
            return True
        is_text = self.as_trained is not None and self._recipe.model.is_text
        return is_text or "screen" in self.text_inputs or super().reads_elements

    @property
    def grey_screens(self) -> str:
        own = None if self.as_trained is None else grey_screens_of(self._recipe)
        return own or super().grey_screens

    @cached_property
    def _recipe(self) -> Recipe:
        """The recipe of the run in `as_trained`. Raises UserError for a run without chat turns."""
        return recipe_of(str(self.as_trained), IN_TURNS, "as_trained")

    @property
    def learned_by(self) -> Path | None:
        return None if self.as_trained is None else run_of(self.as_trained).run

    def identity(self) -> dict[str, Any]:
        """Excludes the address: the same model on another server is the same agent. The action language is not here,
        because `evaluation.about.agent_identity` records it for every agent."""
        fences = {"code_fences": self.code_fences}
        if self._weights is not None:
            return {"model": self.model, "as_trained": self._weights} | fences
        prompt = {} if self._prompt is None else {"prompt": self._prompt.model_dump(mode="json")}
        own = {"model": self.model, "past_screens": self.past_screens, "max_tokens": self.max_tokens}
        return own | fences | prompt

    @cached_property
    def _prompt(self) -> UsersPrompt | None:
        """The content of the file `prompt`. Raises PromptError if it cannot be used."""
        return None if self.prompt is None else UsersPrompt.read(Path(self.prompt))

    @property
    def _prompt_names(self) -> set[str]:
        return set() if self._prompt is None else self._prompt.names

    @cached_property
    def _weights(self) -> str | None:
        """The digest of the run in `as_trained`; None for another model, whose name alone is known."""
        if self.as_trained is None:
            return None
        run = run_of(self.as_trained)
        run.check()
        return run.digest

    def load(self) -> Agent:
        """With `as_trained`, the control of the training (`data.control`) is applied too."""
        language = self.language.build()
        agent = EndpointAgent(
            self.open_calls(self._weights),
            language,
            self.past_screens,
            self.max_tokens,
            workers=self.concurrency,
            code_fences=self.code_fences,
            prompt=self._prompt,
        )
        if self.as_trained is None:
            return agent
        from vlm_agent.agents.examples.of_run import references_of_run
        from vlm_agent.models.build import load_sentences
        from vlm_agent.models.run_layout import trained

        data = self._recipe.data
        if kept := UsedNotes(data.notes).first_names:
            raise UserError(
                f"{self.as_trained} keeps a note of the first step (data.notes.{kept[0]}: first), which as_trained "
                f"does not support; evaluate the run itself, or train with data.notes.{kept[0]}: learned"
            )
        sentences = load_sentences(Path(self.as_trained), language, data)
        if data.references is not None:
            references = references_of_run(trained(Path(self.as_trained)).references, data.references)
            sentences = replace(sentences, references=references)
        agent = replace(agent, max_tokens=sentences.max_answer_tokens, sentences=sentences)
        return agent if data.control is None else controlled(agent, CONTROLS[data.control])
