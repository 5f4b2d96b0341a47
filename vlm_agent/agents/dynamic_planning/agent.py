"""A served model that plans before it acts (D-PoT, arXiv 2410.00467), with every ablation and baseline of the paper.

    the first call    goal, earlier steps, screen          → a plan and its immediate step
    the action's call goal, the immediate step, screen     → the action

Only the line of the immediate step is remembered: in the answer's notes, as `step` and as the `action` in words.
Which calls a step makes and what they show depends on the `Mode`. A reply that cannot be read is asked for once more
with the reason; if that fails too, the step has no action, which is a wrong answer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Literal, Self

from vlm_agent.action_languages import ActionLanguage
from vlm_agent.agents.agent import NOT_PERFORMED, Answer, Diagnostics, Judge, Turn
from vlm_agent.agents.dynamic_planning.modes import Mode
from vlm_agent.agents.dynamic_planning.past import Past, action_lines, answer_recorded, shown_turns, step_lines
from vlm_agent.agents.dynamic_planning.plans import Plans, PlansError
from vlm_agent.agents.dynamic_planning.prompts import FirstForm, Kind, PlannerPrompts
from vlm_agent.agents.dynamic_planning.reading import (
    read_action,
    read_description,
    read_verdict,
    split_thought,
    without_label,
)
from vlm_agent.agents.examples.nearest import Reference, References, ReferenceSource
from vlm_agent.agents.llm.prompted import PromptedAgent, RepairedCalls, Replies
from vlm_agent.agents.llm.prompts import assistant, numbered_lines, pixels_of, system, user
from vlm_agent.agents.llm.replies import Plan, UnreadReplyError, read_plan, sendable
from vlm_agent.drawing.marks import numbered
from vlm_agent.episodes import Action, Episode, Screen, recorded_screen
from vlm_agent.errors import UserError
from vlm_agent.sentences.html import screen_html
from vlm_agent.texts.actions import action_in_words
from vlm_agent.texts.lines import one_line, without_tags

Shown = Literal["html", "picture", "both"]
Feedback = Literal["gold", "own", "screen"]

PLAN_TOKENS, DESCRIPTION_TOKENS, THOUGHT_TOKENS, ACTION_TOKENS, VERDICT_TOKENS, CAPTION_TOKENS = 100, 80, 50, 15, 25, 60
"""Tokens of replies, for estimates."""

_TYPICAL = {
    "plan": '{"plan": "1. open the app", "step": "open the app, which is on the first page of the home screen"}',
    "description": "The home screen is shown, and nothing has been done. Open the app.",
    "caption": "The home screen of the phone, with a search bar, the clock, and rows of apps. No app is open.",
    "verdict": '{"right": false, "reason": "another app is needed"}',
}
_PLANS_ON_A_PHONE = "plans of a file are for recorded episodes; remove plans to act on a phone"
_FAILED = f"(Last action: {NOT_PERFORMED}.)"

Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class _Situation:
    """What is known at a step. `plan`: of a file or shards. `is_right`: gold feedback. `episode`: id, if recorded."""

    goal: str
    history: Sequence[Turn]
    screen: Screen
    plan: Plan | None = None
    is_right: Callable[[Action], bool] | None = None
    episode: str = ""


@dataclass(frozen=True)
class _Guide:
    """What the action's call shows of the first one, as paragraphs, and what the answer keeps of it."""

    paragraphs: Mapping[str, str] = field(default_factory=dict)
    plan: tuple[str, ...] = ()
    step: str = ""
    thought: str = ""

    @property
    def notes(self) -> dict[str, str]:
        texts = {"think": self.thought, "action": self.step, "plan": "\n".join(self.plan), "step": self.step}
        return {name: text for name, text in texts.items() if text}


@dataclass(frozen=True)
class DynamicPlanningAgent(PromptedAgent):
    """`language`: reads the actions. `max_tokens`: limit of each reply.

    `rounds`: earlier screens with answers that a mode with memory `rounds` shows; None: all. `examples`: how many a
    mode with examples shows. `feedback`: who judges an action in a mode with feedback. `gold`: the demonstrated action,
    only in recorded episodes. `own`: the model, with one more call. `screen`: on a phone, a screen that the last action
    left unchanged.

    `shown`: the screen as HTML, as a picture, or both, in all calls. A picture alone has the numbers of its elements if
    the language needs them.

    `past`: what the history of a recorded episode consists of (`past.py`). `plans`: by episode id, in place of planning
    calls; number n belongs to turn n, and the last one to all later turns. `judge`: for gold feedback.

    `references`: similar episodes that planning calls show, never the recorded one that is answered. The model is asked
    once for a caption of the first screen of each; the first step of an episode counts these calls.
    """

    prompts: PlannerPrompts
    language: ActionLanguage
    mode: Mode
    rounds: int | None = None
    examples: int = 0
    feedback: Feedback | None = None
    shown: Shown = "both"
    past: Past = "own"
    plans: Plans | None = None
    max_tokens: int = 300
    judge: Judge | None = None
    references: References[ReferenceSource] | None = None

    def judged_by(self, judge: Judge) -> Self:
        return replace(self, judge=judge)

    def answer(self, goal: str, history: Sequence[Turn], screen: Screen, replies: Replies, episode: str = "") -> Answer:
        """`episode`: the id of a recorded one, which is not among its own references. Raises UserError for settings
        that only recorded episodes have."""
        if self.plans is not None:
            raise UserError(_PLANS_ON_A_PHONE)
        if self.feedback == "gold":
            raise UserError("feedback: gold needs recorded actions; on a phone use feedback: screen, or own")
        return self._answer(_Situation(goal, history, screen, episode=episode), replies)

    def answer_episodes(self, episodes: Sequence[Episode]) -> list[list[Answer]]:
        """Answers step by step; those of an episode one after the other if the past is the agent's own.

        Raises UserError for an episode without a plan in the file, and for feedback that a recorded
        episode cannot give.
        """
        if self.feedback == "screen":
            raise UserError(
                "feedback: screen needs a phone, because a recorded screen does not follow from the agent's action; "
                "use feedback: own, or gold"
            )
        return self.answer_steps(episodes)

    def answer_steps(self, episodes: Sequence[Episode]) -> list[list[Answer]]:
        for episode in episodes:
            for number in range(len(episode)):
                self._plan_for(episode, number)
        return answer_recorded(self._recorded_step, episodes, self.past, self.workers, self.stop)

    def _recorded_step(self, episode: Episode, number: int, history: Sequence[Turn]) -> Answer:
        is_right, judge, step = None, self.judge, episode.steps[number]
        if self.feedback == "gold" and self.rehearsed is None:
            if judge is None:
                raise UserError("feedback: gold needs recorded actions, as `vlm-agent evaluate` has them")
            is_right = lambda action: judge(action, step)  # noqa: E731
        history, screen = self.visible(history, recorded_screen(episode, number))
        plan = self._plan_for(episode, len(history))
        situation = _Situation(episode.goal, history, screen, plan, is_right, episode.id)
        return self.answer_with_calls(lambda replies: self._answer(situation, replies))

    def _plan_for(self, episode: Episode, turn: int) -> Plan | None:
        """The plan of a file or shards. A later one than that of `turn` would describe screens that are not shown
        yet."""
        if self.plans is None:
            return None
        if not episode.id:  # a step of a phone
            raise UserError(_PLANS_ON_A_PHONE)
        if episode.id not in self.plans:
            raise PlansError(f"the file of plans has none for episode {episode.id}; it has {len(self.plans):,} plans")
        plans = self.plans[episode.id]
        number = 0 if self.mode.once else min(turn, len(plans) - 1)
        if self.mode.first == "plan" and not plans[number].lines:
            raise PlansError(
                f"step {number} of episode {episode.id} has an immediate step and no lines of a plan, which this mode "
                "shows; use mode d_pot, or shards with both"
            )
        return plans[number]

    def _answer(self, situation: _Situation, replies: Replies) -> Answer:
        calls, guide = RepairedCalls(replies, self.prompts, self.max_tokens, _TYPICAL), _Guide()
        try:
            guide = self._guide(situation, calls)
            answer = self._act(situation, guide, calls)
        except UnreadReplyError as error:
            answer = Answer(error.text, None, diagnostics=Diagnostics(unread=str(error)))
        has_goal = None if self.references is None else self.references.has_goal(situation.goal, situation.episode)
        diagnostics = replace(answer.diagnostics, repaired=calls.repaired, reference_has_goal=has_goal)
        return replace(answer, notes={**guide.notes, **answer.notes}, diagnostics=diagnostics)

    # The first call

    def _guide(self, situation: _Situation, calls: RepairedCalls) -> _Guide:
        first = self.mode.first
        if first == "nothing":
            return _Guide()
        if first == "description":
            messages = self._first_messages("description", situation.goal, situation.history, situation.screen)
            text = calls.read(messages, read_description, "description", DESCRIPTION_TOKENS, kind=first)
            return _Guide({"description": text}, thought=text)
        plan = self._plan(first, situation, calls)
        if first == "plan_and_step":
            return _Guide({"step": plan.step}, plan.lines, plan.step)
        return _Guide({"plan": numbered_lines(plan.lines)}, plan.lines)

    def _plan(self, form: FirstForm, situation: _Situation, calls: RepairedCalls) -> Plan:
        history, screen, is_repeated = situation.history, situation.screen, False
        if situation.plan is not None:
            return situation.plan
        if self.mode.once and history:
            first = history[0]
            if first.answer is not None and (known := first.answer.notes.get("plan")):
                return Plan(tuple(known.split("\n")))
            # The same request as at the first step, which counts it.
            history, screen, is_repeated = (), first.screen, True
        counts = not is_repeated
        examples = self._references(situation, calls, counts=counts and not history)
        return calls.read(
            self._first_messages(form, situation.goal, history, screen, examples),
            lambda text: read_plan(text, with_step=form == "plan_and_step"),
            "plan",
            PLAN_TOKENS,
            counts=counts,
            kind=form,
        )

    def _references(self, situation: _Situation, calls: RepairedCalls, counts: bool) -> str:
        """The paragraph of the nearest episodes; empty without any. `counts`: whether this step counts the captions."""
        if self.references is None:
            return ""
        shown = [
            self.prompts.fill(
                "reference",
                goal=one_line(one.goal),
                caption=self._caption(self.references, one, calls, counts),
                actions=numbered_lines(one.actions),
            )
            for one in self.references.nearest(situation.goal, situation.episode)
        ]
        return self.prompts.fill("references", references="\n\n".join(shown)) if shown else ""

    def _caption(
        self, references: References[ReferenceSource], reference: Reference, calls: RepairedCalls, counts: bool
    ) -> str:
        """The model's words for the first screen of an episode. A step that does not count it reads it from memory, or
        from disk."""
        known = references.captions.get(reference.id)
        if known is not None and not counts:
            return known
        screen = references.source.first_screen(reference.number)
        question = self._screen_turn("", {}, screen, str(self.prompts.caption_question), with_marks=False)
        messages = [system(str(self.prompts.caption)), question]
        caption = calls.read(messages, read_description, "caption", CAPTION_TOKENS, counts, kind="caption")
        if self.rehearsed is None:
            references.captions[reference.id] = caption
        return caption

    def _first_messages(
        self, form: FirstForm, goal: str, history: Sequence[Turn], screen: Screen, references: str = ""
    ) -> Messages:
        opening = self.prompts.fill("first_system", form=self.prompts.first_forms[form])
        return [
            system(f"{opening}\n\n{references}" if references else opening),
            self._screen_turn(goal, self._memory(history), screen, self.prompts.first_question[form]),
        ]

    # The action's call

    def _act(self, situation: _Situation, guide: _Guide, calls: RepairedCalls) -> Answer:
        messages = self._action_messages(situation, guide)
        answer = self._ask_for_action(messages, situation.screen, calls, "thought" if self.mode.thought else "action")
        if self.feedback not in ("gold", "own") or answer.action is None:
            return answer
        is_right, reason = self._verdict(situation, answer.action, calls)
        if is_right:
            return answer
        again = [*messages, assistant(sendable(answer.text)), user(self.prompts.fill("wrong", reason=reason))]
        return self._ask_for_action(again, situation.screen, calls, "correction")

    def _ask_for_action(self, messages: Messages, screen: Screen, calls: RepairedCalls, kind: Kind) -> Answer:
        def read(text: str) -> Answer:
            thought, written = split_thought(text) if self.mode.thought else ("", without_label(text))
            action = read_action(written, self.language, screen)
            box = self.language.predicted_box(written, screen)
            return Answer(written, action, {"think": thought} if thought else {}, box=box)

        typical, tokens = self.language.encode(Action.complete(), screen), ACTION_TOKENS
        if self.mode.thought:
            typical, tokens = f"Thought: the goal is reached\nAction: {typical}", ACTION_TOKENS + THOUGHT_TOKENS
        return calls.read(messages, read, typical, tokens, kind=kind)

    def _action_messages(self, situation: _Situation, guide: _Guide) -> Messages:
        form = self.prompts.action_forms["thought" if self.mode.thought else "action"]
        opening = self.prompts.fill("action_system", language=self.language.instructions, form=form)
        if self.mode.examples:
            opening = f"{opening}\n\n{self.prompts.with_examples(self.examples, self.language)}"
        messages = [system(opening)]
        if self.mode.memory == "rounds":
            messages += self._earlier_rounds(situation.goal, situation.history)
        paragraphs = self._memory(situation.history) if self.mode.first == "nothing" else {}
        if self.feedback == "screen":
            # The last actions, since which the screen has not changed; none if the last one changed it.
            last = takewhile(lambda turn: turn.changed is False, reversed(situation.history))
            in_words = [action_in_words(turn.action, turn.screen) for turn in last]
            paragraphs |= {"unchanged": ", then ".join(reversed(in_words))}
        paragraphs |= guide.paragraphs
        question = self._question_after(situation.history)
        return [*messages, self._screen_turn(situation.goal, paragraphs, situation.screen, question)]

    def _earlier_rounds(self, goal: str, history: Sequence[Turn]) -> Messages:
        turns = [turn for _, turn in shown_turns(history)]
        if self.rounds is not None:
            turns = turns[len(turns) - min(self.rounds, len(turns)) :]
        messages: Messages = []
        for number, turn in enumerate(turns):
            question = self._question_after(turns[:number])
            messages.append(self._screen_turn(goal, {}, turn.screen, question))
            messages.append(assistant(self._written(turn)))
        return messages

    def _question_after(self, turns: Sequence[Turn]) -> str:
        """The question for an action. After a round whose action failed it says so."""
        failed = self.mode.memory == "rounds" and bool(turns) and turns[-1].failed
        return f"{_FAILED}\n\n{self.prompts.action_question}" if failed else self.prompts.action_question

    def _written(self, turn: Turn) -> str:
        """An earlier answer: the agent's own, or the demonstrated action as the language writes it."""
        text = self.language.encode(turn.action, turn.screen) if turn.answer is None else turn.answer.text
        notes = turn.notes if turn.answer is None else turn.answer.notes
        thought = one_line(notes.get("think", ""))
        return f"Thought: {thought}\nAction: {sendable(text)}" if thought else f"Action: {sendable(text)}"

    def _verdict(self, situation: _Situation, action: Action, calls: RepairedCalls) -> tuple[bool, str]:
        """(whether the action is right, why it is not)"""
        if situation.is_right is not None:
            return situation.is_right(action), ""
        if self.feedback == "gold":  # an estimate, for which the action counts as wrong
            return False, ""
        paragraphs = {"judged_action": action_in_words(action, situation.screen)}
        question = self._screen_turn(situation.goal, paragraphs, situation.screen, self.prompts.judge_question)
        messages = [system(self.prompts.judge), question]
        return calls.read(messages, read_verdict, "verdict", VERDICT_TOKENS, kind="verdict")

    # Parts of both calls

    def _memory(self, history: Sequence[Turn]) -> dict[str, str]:
        if self.mode.memory == "actions":
            return {"actions": action_lines(history)}
        return {"steps": step_lines(history)} if self.mode.memory == "steps" else {}

    def _screen_turn(
        self, goal: str, paragraphs: Mapping[str, str], screen: Screen, question: str, with_marks: bool = True
    ) -> dict[str, Any]:
        """A turn of the user: goal, paragraphs, screen, question. A line break in a goal cannot begin a paragraph,
        and a paragraph, in which a model may repeat what a screen says, has no element of HTML."""
        if screen.elements is None and self.shown == "html":
            raise UserError("screen: html needs the elements of screens, and this source has none; use screen: picture")
        if screen.pixels is None and self.shown != "html":
            raise UserError(f"screen: {self.shown} needs screenshots, and this source has none; use screen: html")
        html = "" if self.shown == "picture" else screen_html(screen).strip()
        numbers = with_marks and self.language.needs_elements
        needs_marks = self.shown == "picture" and numbers and bool(screen.elements)
        notes = [self.prompts.marks] if needs_marks else []
        if not screen.elements and (self.shown != "picture" or numbers):
            notes.append(self.prompts.no_elements)
        shown = {name: without_tags(text) for name, text in paragraphs.items()}
        texts = {"goal": one_line(goal), **shown, "html": html}
        text = "\n\n".join(part for part in (self.prompts.paragraphs(texts), *notes, question) if part)
        if self.shown == "html":
            return user(text)
        pixels = pixels_of(screen)
        return user(text, [numbered(pixels, screen.elements or ()) if needs_marks else pixels])
