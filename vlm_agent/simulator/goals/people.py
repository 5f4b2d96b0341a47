"""More templates of `google_apps`: mail, messages, contacts."""

import random

from vlm_agent.simulator.apps.mail import Letter, Mail
from vlm_agent.simulator.apps.messages import Contacts, Messages
from vlm_agent.simulator.expert import GoalScript, after_opening, tap, type_text
from vlm_agent.simulator.goals.starts import begin
from vlm_agent.simulator.phone import SimulatedPhone
from vlm_agent.simulator.tasks import Goal, Slots, template
from vlm_agent.simulator.words import CITIES, DAYS, LABELS, NAMES


def with_letter(phone: SimulatedPhone, rng: random.Random, name: str) -> None:
    """Add an unstarred letter from `name` at a random position in the inbox."""
    mail = phone.the(Mail)
    mail.inbox = [letter for letter in mail.inbox if letter.sender != name]
    subject = f"{rng.choice(LABELS).capitalize()} on {rng.choice(DAYS)}"
    letter = Letter(name, subject, f"Shall we meet in {rng.choice(CITIES)}?", False, rng.random() < 0.5)
    mail.inbox.insert(rng.randint(0, len(mail.inbox)), letter)


def is_handled(phone: SimulatedPhone, name: str, verb: str) -> bool:
    """Whether the letter from `name` is in the state after `verb`: star, open, archive or delete."""
    mail = phone.the(Mail)
    letter = mail.letter(name)
    if verb == "star":
        return letter is not None and letter.starred
    if verb == "open":
        return phone.shown == "Mail" and mail.route.name == "letter" and mail.route.about.sender == name
    return name in (mail.archived if verb == "archive" else mail.deleted)


@template("google_apps", 1.8)
def handle_mail(slots: Slots) -> Goal:
    name, verb = slots.pick(NAMES), slots.pick(("star", "archive", "delete", "open"))

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        with_letter(phone, rng, name)
        begin(phone, rng, "Mail", 0.25)

    opened = [tap(f"letter:{name}"), *[tap(verb)] * (verb != "open")]
    return Goal(
        (f"{verb.capitalize()} the mail from {name}", f"Open Mail and {verb} the letter from {name}"),
        start,
        after_opening("Mail", *([tap(f"star:{name}")] if verb == "star" else opened)),
        lambda phone: is_handled(phone, name, verb),
    )


@template("google_apps", 1.9)
def reply_mail(slots: Slots) -> Goal:
    name, text = slots.pick(NAMES), slots.pick(LABELS)

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        with_letter(phone, rng, name)
        begin(phone, rng, "Mail", 0.25)

    return Goal(
        (f"Reply {text} to the mail from {name}", f"Answer the letter from {name} with {text}"),
        start,
        after_opening("Mail", tap(f"letter:{name}"), tap("reply"), tap("reply"), type_text(text), tap("send")),
        lambda phone: is_sent(phone.the(Mail), name, text),
    )


def is_sent(app: Mail | Messages, name: str, text: str) -> bool:
    """Whether `name` was sent `text`, in any case of letters."""
    return (name, text.casefold()) in ((to, written.strip().casefold()) for to, written in app.sent)


def with_talk(phone: SimulatedPhone, rng: random.Random, name: str) -> None:
    messages = phone.the(Messages)
    if name not in messages.people:
        messages.people[rng.randrange(len(messages.people))] = name


def sending(name: str, text: str) -> GoalScript:
    return after_opening("Messages", tap(f"talk:{name}"), tap("message"), type_text(text), tap("send"))


@template("google_apps", 3.0)
def message(slots: Slots) -> Goal:
    name, text = slots.pick(NAMES), slots.pick(LABELS)

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        with_talk(phone, rng, name)
        begin(phone, rng, "Messages", 0.25)

    return Goal(
        (f"Send {text} to {name}", f"Send a message to {name} that says {text}", f"Text {name}: {text}"),
        start,
        sending(name, text),
        lambda phone: is_sent(phone.the(Messages), name, text),
    )


@template("google_apps", 1.2)
def call(slots: Slots) -> Goal:
    name = slots.pick(NAMES)

    return Goal(
        (f"Call {name}", f"Open Contacts and call {name}"),
        lambda phone, rng: begin(phone, rng, "Contacts", 0.25),
        after_opening("Contacts", tap(f"person:{name}"), tap("call")),
        lambda phone: name in phone.the(Contacts).calls,
    )
