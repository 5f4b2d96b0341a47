"""The phone's own apps, continued: mail, messages, contacts."""

from vlm_agent.devices.simulated_phone.apps.mail import Letter
from vlm_agent.devices.simulated_phone.expert import open_app, tap, type_text
from vlm_agent.devices.simulated_phone.goals.starts import begin
from vlm_agent.devices.simulated_phone.tasks import Goal, Slots, template
from vlm_agent.devices.simulated_phone.words import CITIES, DAYS, LABELS, NAMES


def with_letter(phone, rng, name: str) -> None:
    """The inbox has a letter from `name`, unstarred, at any place."""
    mail = phone.app("Mail")
    mail.inbox = [letter for letter in mail.inbox if letter.sender != name]
    subject = f"{rng.choice(LABELS).capitalize()} on {rng.choice(DAYS)}"
    letter = Letter(name, subject, f"Shall we meet in {rng.choice(CITIES)}?", False, rng.random() < 0.5)
    mail.inbox.insert(rng.randint(0, len(mail.inbox)), letter)


@template("google_apps", 1.8)
def handle_mail(slots: Slots) -> Goal:
    name, deed = slots.pick(NAMES), slots.pick(("star", "archive", "delete", "open"))

    def start(phone, rng):
        with_letter(phone, rng, name)
        begin(phone, rng, "Mail", 0.25)

    def plan(phone):
        yield from open_app(phone, "Mail")
        if deed == "star":
            yield tap(f"star:{name}")
            return
        yield tap(f"letter:{name}")
        if deed != "open":
            yield tap(deed)

    def reached(phone) -> bool:
        mail = phone.app("Mail")
        letter = mail.letter(name)
        if deed == "star":
            return letter is not None and letter.starred
        if deed == "open":
            return phone.front == "Mail" and mail.route.name == "letter" and mail.route.about.sender == name
        return name in (mail.archived if deed == "archive" else mail.deleted)

    verb = deed.capitalize()
    return Goal((f"{verb} the mail from {name}", f"Open Mail and {deed} the letter from {name}"), start, plan, reached)


@template("google_apps", 1.9)
def reply_mail(slots: Slots) -> Goal:
    name, text = slots.pick(NAMES), slots.pick(LABELS)

    def start(phone, rng):
        with_letter(phone, rng, name)
        begin(phone, rng, "Mail", 0.25)

    def plan(phone):
        yield from open_app(phone, "Mail")
        yield tap(f"letter:{name}")
        yield tap("reply")
        yield tap("reply")
        yield type_text(text)
        yield tap("send")

    return Goal(
        (f"Reply {text} to the mail from {name}", f"Answer the letter from {name} with {text}"),
        start,
        plan,
        lambda phone: (name, text) in phone.app("Mail").sent,
    )


def with_talk(phone, rng, name: str) -> None:
    messages = phone.app("Messages")
    if name not in messages.people:
        messages.people[rng.randrange(len(messages.people))] = name


def send_message(phone, name: str, text: str):
    yield from open_app(phone, "Messages")
    yield tap(f"talk:{name}")
    yield tap("message")
    yield type_text(text)
    yield tap("send")


@template("google_apps", 3.0)
def message(slots: Slots) -> Goal:
    name, text = slots.pick(NAMES), slots.pick(LABELS)

    def start(phone, rng):
        with_talk(phone, rng, name)
        begin(phone, rng, "Messages", 0.25)

    return Goal(
        (f"Send {text} to {name}", f"Send a message to {name} that says {text}", f"Text {name}: {text}"),
        start,
        lambda phone: send_message(phone, name, text),
        lambda phone: (name, text) in phone.app("Messages").sent,
    )


@template("google_apps", 1.2)
def call(slots: Slots) -> Goal:
    name = slots.pick(NAMES)

    def plan(phone):
        yield from open_app(phone, "Contacts")
        yield tap(f"person:{name}")
        yield tap("call")

    return Goal(
        (f"Call {name}", f"Open Contacts and call {name}"),
        lambda phone, rng: begin(phone, rng, "Contacts", 0.25),
        plan,
        lambda phone: name in phone.app("Contacts").calls,
    )
