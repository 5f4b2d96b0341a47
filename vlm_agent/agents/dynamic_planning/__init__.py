"""Settings of the agent that prompts a served model to plan before it acts (D-PoT), or as one of its baselines."""

import difflib
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from vlm_agent.action_languages import ChosenLanguage, LanguageSettings, language_settings
from vlm_agent.agents.chats import Chat
from vlm_agent.agents.dynamic_planning.modes import MODES, Mode
from vlm_agent.agents.dynamic_planning.plans import read_plans
from vlm_agent.agents.dynamic_planning.prompts import EXAMPLES, OF_REFERENCES, PROMPTS, PlannerPrompts, read_examples
from vlm_agent.agents.examples import ReferenceSettings
from vlm_agent.agents.llm.prompted import PromptedSettings
from vlm_agent.agents.llm.prompts import PromptError
from vlm_agent.episodes import Episode
from vlm_agent.errors import UserError
from vlm_agent.files import sha256_of
from vlm_agent.files.installation import DOCS

if TYPE_CHECKING:
    from vlm_agent.agents.dynamic_planning.agent import DynamicPlanningAgent

_ROUNDS, _EXAMPLES = 4, 4
_NOTES = {
    "gold": "gold feedback: an action is asked for again where the recorded one shows that it is wrong",
    "own": "the prompted model judges its action, and is asked again if it calls it wrong",
    "screen": "the agent learns which of its actions left the screen unchanged",
}


class DynamicPlanningSettings(PromptedSettings):
    """`mode`: one of `MODES`. `rounds`: react, earlier screens with answers in the prompt, a number or `all` (default
    4). `examples`: few_shot, their number (default 4). `feedback`: reflexion, and required there.

    `screen`, `past`, `plans`, `max_tokens`: see `DynamicPlanningAgent`; `plans` is a file (`plans.py`). `references`:
    similar episodes in the planning call (`examples`).
    """

    agent: str = "dynamic_planning"
    mode: str = "d_pot"
    rounds: NonNegativeInt | Literal["all"] | None = None
    examples: PositiveInt | None = None
    feedback: Literal["gold", "own", "screen"] | None = None
    screen: Literal["html", "picture", "both"] = "both"
    past: Literal["own", "demonstrated"] = "own"
    plans: str | None = None
    references: ReferenceSettings | None = None
    max_tokens: PositiveInt = 300
    action_language: ChosenLanguage = Field(default_factory=lambda: language_settings({"name": "element_index"}))

    @field_validator("mode")
    @classmethod
    def _known(cls, mode: str) -> str:
        if mode not in MODES:
            (nearest,) = difflib.get_close_matches(mode, MODES, n=1, cutoff=0)
            raise ValueError(f"{mode!r} is unknown; did you mean {nearest}? All modes: {', '.join(MODES)}")
        return mode

    @model_validator(mode="after")
    def _fits_the_mode(self) -> Self:
        mode = self._mode
        of_modes = {"rounds": mode.memory == "rounds", "examples": mode.examples, "feedback": mode.feedback}
        for name, fits in of_modes.items():
            if getattr(self, name) is not None and not fits:
                raise ValueError(f"{name} is not a setting of mode {self.mode}; remove it")
        if mode.feedback and self.feedback is None:
            raise ValueError(f"mode {self.mode} needs feedback: gold, own or screen ({DOCS / 'agents.md'})")
        for name in ("plans", "references"):
            if getattr(self, name) is not None and mode.first not in ("plan", "plan_and_step"):
                raise ValueError(f"{name} need a mode that plans, and mode {self.mode} does not")
        if self.plans is not None and self.references is not None:
            raise ValueError("references are for planning calls, and plans of a file replace these; remove one of both")
        if self.examples is not None and self.examples > (most := len(read_examples())):
            raise ValueError(f"examples must be at most {most}")
        return self

    @property
    def _mode(self) -> Mode:
        return MODES[self.mode]

    @property
    def _shown_rounds(self) -> int | Literal["all"] | None:
        return _ROUNDS if self.rounds is None and self._mode.memory == "rounds" else self.rounds

    @property
    def _shown_examples(self) -> int:
        return (_EXAMPLES if self.examples is None else self.examples) if self._mode.examples else 0

    @property
    def display_name(self) -> str:
        details = [self.mode]
        if self._mode.memory == "rounds":
            details.append(f"{self._shown_rounds} earlier rounds")
        if self._mode.examples:
            details.append(f"{self._shown_examples} examples")
        if self.feedback is not None:
            details.append(f"{self.feedback} feedback")
        if self.plans is not None:
            details.append("plans of a file")
        if self.references is not None:
            details.append(self.references.in_words)
        return f"{self.model} at {self.endpoint}, {', '.join(details)}"

    @property
    def language(self) -> LanguageSettings:
        return self.action_language

    @property
    def reads_elements(self) -> bool:
        return self.screen != "picture" or super().reads_elements

    @property
    def text_inputs(self) -> tuple[str, ...]:
        """With `past: demonstrated`, recorded descriptions of actions and thoughts are used where they exist."""
        if self.past == "own":
            return ()
        return {"actions": ("action",), "steps": ("action",), "rounds": ("think",)}.get(self._mode.memory, ())

    @property
    def text_notes(self) -> dict[str, str]:
        notes = {} if self.feedback is None else {"feedback": _NOTES[self.feedback]}
        if self.plans is not None:
            notes["plans"] = "a file or shards, in place of planning calls"
        if self.references is not None:
            notes["references"] = self.references.note
        if self._mode.memory != "nothing" and self.past == "own":
            notes["history"] = "the agent's own answers, on the recorded screens"
        return notes

    def identity(self) -> dict[str, Any]:
        """The same model on another server is the same agent. Files count by their content."""
        names = ("agent", "model", "mode", "feedback", "screen", "past", "max_tokens")
        # Without references their prompts, which are then not sent, change no result.
        content = self._prompts().model_dump_json(exclude=None if self.references else set(OF_REFERENCES))
        identity = {name: getattr(self, name) for name in names}
        identity |= {"rounds": self._shown_rounds, "examples": self._shown_examples}
        identity["prompts"] = hashlib.sha256(content.encode()).hexdigest()
        if self._mode.examples:
            identity["example_file"] = sha256_of([EXAMPLES])
        if self.plans is not None:
            identity["plans"] = hashlib.sha256(repr(sorted(read_plans(Path(self.plans)).items())).encode()).hexdigest()
        if self.references is not None:
            identity["references"] = self.references.identity()
        return identity

    def chats(self, episodes: Iterable[Episode]) -> Iterator[Chat]:
        """Without plans of a file: every plan is written. The captions of references are the recorded descriptions of
        their first screens. Raises ReferencesError where these have none, and UserError for gold feedback, which is not
        the model's to learn."""
        from vlm_agent.agents.dynamic_planning.chats import chats_of

        if self.feedback == "gold":
            raise UserError("chats teach a model to judge its actions: use feedback: own, or screen")
        agent = self.model_copy(update={"plans": None, "references": None}).load()
        if self.references is not None:
            agent = replace(agent, references=self.references.load(None))
        return chats_of(agent, episodes, reflects=self.feedback == "own")

    def load(self) -> "DynamicPlanningAgent":
        from vlm_agent.agents.dynamic_planning.agent import DynamicPlanningAgent

        rounds, calls = self._shown_rounds, self.open_calls()
        references = None if self.references is None else self.references.load(calls.folder / "references")
        return DynamicPlanningAgent(
            calls,
            self._prompts(),
            self.language.build(),
            self._mode,
            None if rounds == "all" else rounds,
            self._shown_examples,
            self.feedback,
            self.screen,
            self.past,
            None if self.plans is None else read_plans(Path(self.plans)),
            self.max_tokens,
            references=references,
            workers=self.concurrency,
        )

    def _prompts(self) -> PlannerPrompts:
        prompts = PlannerPrompts.read(PROMPTS if self.prompts is None else Path(self.prompts))
        missing = sorted(name for name in OF_REFERENCES if getattr(prompts, name) is None)
        if self.references is not None and missing:
            raise PromptError(f"{self.prompts} lacks {', '.join(missing)}, which references need")
        return prompts
