"""Templates of `google_apps`: settings, clock, calendar, and goals across several apps."""

import random
from collections.abc import Iterator
from functools import partial

from vlm_agent.simulator.apps.calendar import Calendar
from vlm_agent.simulator.apps.clock import MINUTES, Alarm, Clock
from vlm_agent.simulator.apps.messages import Messages
from vlm_agent.simulator.apps.settings import CHOICES, Settings
from vlm_agent.simulator.expert import Intent, after_opening, home_for, open_app, see, swipe, tap, type_text
from vlm_agent.simulator.goals.people import is_sent, sending, with_talk
from vlm_agent.simulator.goals.starts import anywhere, begin
from vlm_agent.simulator.phone import SimulatedPhone
from vlm_agent.simulator.tasks import Goal, Slots, template
from vlm_agent.simulator.words import APPS, CITIES, DAYS, LABELS, NAMES, SWITCHES

HOURS = range(1, 13)


def to_tab(phone: SimulatedPhone, tab: str) -> Iterator[Intent]:
    """Open the tab of the clock, with the clock in the foreground."""
    if phone.the(Clock).tab != tab:
        yield tap(f"tab:{tab}")


@template("google_apps", 1.5)
def turn_switch(slots: Slots) -> Goal:
    name, state = slots.pick(SWITCHES), slots.pick(("on", "off"))

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        phone.switches[name] = state == "off"
        begin(phone, rng, "Settings")

    return Goal(
        (f"Turn {state} {name}", f"Turn {name} {state} in Settings", f"Please turn {state} {name.lower()}"),
        start,
        after_opening("Settings", tap(name)),
        lambda phone: phone.switches[name] is (state == "on"),
    )


def choose_another(phone: SimulatedPhone, rng: random.Random, page: str, choice: str) -> None:
    phone.the(Settings).choices[page] = rng.choice([other for other in CHOICES[page] if other != choice])


@template("google_apps", 0.8)
def choose_setting(slots: Slots) -> Goal:
    page = slots.pick(CHOICES)
    choice = slots.pick(CHOICES[page])

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        choose_another(phone, rng, page, choice)
        begin(phone, rng, "Settings")

    return Goal(
        (f"Set {page} to {choice}", f"Go to {page} in Settings and choose {choice}"),
        start,
        after_opening("Settings", tap(page), tap(choice)),
        lambda phone: phone.the(Settings).choices[page] == choice,
    )


def with_tile(phone: SimulatedPhone, rng: random.Random, name: str, is_on: bool) -> None:
    """Set the switch, and show it in the quick settings."""
    phone.switches[name] = is_on
    if name not in phone.quick:
        phone.quick[rng.randrange(len(phone.quick))] = name


@template("google_apps", 1.3)
def quick_switch(slots: Slots) -> Goal:
    name, state = slots.pick(SWITCHES), slots.pick(("on", "off"))

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        with_tile(phone, rng, name, state == "off")
        anywhere(phone, rng)

    def script(phone: SimulatedPhone) -> Iterator[Intent]:
        if not phone.shade:
            yield swipe("shade", name)
        yield tap(f"quick:{name}")

    return Goal(
        (f"Turn {state} {name} in the quick settings", f"Pull down the quick settings and turn {name} {state}"),
        start,
        script,
        lambda phone: phone.switches[name] is (state == "on"),
    )


def on_dial(hour: int, minute: int, half: str) -> list[Intent]:
    """Set the time on the open dial."""
    at = [tap(f"hour:{hour}"), *[tap(f"minute:{minute}")] * (minute > 0)]
    return [*at, *[tap("PM")] * (half == "PM"), tap("ok")]


@template("google_apps", 1.5)
def set_alarm(slots: Slots) -> Goal:
    hour, minute, half = slots.pick(HOURS), slots.pick(MINUTES), slots.pick(("AM", "PM"))
    time = f"{hour}:{minute:02d} {half}"

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        clock = phone.the(Clock)
        clock.alarms = [alarm for alarm in clock.alarms if alarm.time != time]
        anywhere(phone, rng, "Clock", inside=0.3)

    return Goal(
        (f"Set an alarm for {time}", f"Wake me up at {time}", f"Add a {time} alarm in Clock"),
        start,
        after_opening("Clock", partial(to_tab, tab="Alarm"), tap("new_alarm"), *on_dial(hour, minute, half)),
        lambda phone: any(alarm.time == time and alarm.on for alarm in phone.the(Clock).alarms),
    )


@template("google_apps", 1.3)
def add_clock(slots: Slots) -> Goal:
    city = slots.pick(CITIES)

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        clock = phone.the(Clock)
        clock.zones = [zone for zone in clock.zones if zone != city]
        anywhere(phone, rng, "Clock")

    add = (tap("add_city"), tap("city"), type_text(city), tap(f"city:{city}"))
    return Goal(
        (f"Add {city} to the world clock", f"Show the time in {city} in Clock"),
        start,
        after_opening("Clock", partial(to_tab, tab="Clock"), *add),
        lambda phone: city in phone.the(Clock).zones,
    )


@template("google_apps", 0.9)
def see_event(slots: Slots) -> Goal:
    day, event = slots.pick(DAYS), slots.pick(LABELS)
    delete = slots.pick((True, False))

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        calendar = phone.the(Calendar)
        events = [*calendar.week[day], event]
        rng.shuffle(events)
        calendar.week[day] = {name: calendar.week[day].get(name, rng.choice(CITIES)) for name in events}
        calendar.at = min(max(0, DAYS.index(day) + rng.choice((-2, -1, -1, -1, 1, 1, 1, 2))), 6)
        anywhere(phone, rng, "Calendar", inside=0.25)

    def script(phone: SimulatedPhone) -> Iterator[Intent]:
        yield from open_app(phone, "Calendar")
        calendar = phone.the(Calendar)
        while calendar.day != day:
            yield swipe("left" if DAYS.index(day) > calendar.at else "right", day)
        yield tap(f"event:{event}")
        if delete:
            yield tap("delete")

    def reached(phone: SimulatedPhone) -> bool:
        calendar = phone.the(Calendar)
        if delete:
            return (day, event) in calendar.deleted
        return phone.shows("Calendar", "event", event) and calendar.day == day

    verb = "Delete" if delete else "Show"
    return Goal(
        (f"{verb} the {event} on {day}", f"{verb} the {event} of {day} in the calendar"), start, script, reached
    )


@template("google_apps", 1.1, memory=True)
def turn_off_and_on(slots: Slots) -> Goal:
    name = slots.pick(SWITCHES)
    first = slots.pick(("off", "on"))
    second = "on" if first == "off" else "off"

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        phone.switches[name] = first == "off"
        begin(phone, rng, "Settings", 0.3)

    return Goal(
        (f"Turn {name} {first} and {second} again", f"Turn {first} {name}, then turn it {second} again"),
        start,
        after_opening("Settings", tap(name), tap(name)),
        lambda phone: (
            [is_on for switch, is_on in phone.toggle_history if switch == name][-2:] == [first == "on", second == "on"]
        ),
    )


@template("google_apps", 1.4, memory=True)
def send_alarm_label(slots: Slots) -> Goal:
    label, name = slots.hide(LABELS), slots.pick(NAMES)
    hour, half = slots.pick(HOURS), slots.pick(("AM", "PM"))

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        clock = phone.the(Clock)
        minute = rng.choice(MINUTES)
        clock.alarms = [
            alarm for alarm in clock.alarms if (alarm.hour, alarm.half) != (hour, half) and alarm.label != label
        ]
        clock.alarms.insert(rng.randint(0, min(4, len(clock.alarms))), Alarm(hour, minute, half, label, True))
        clock.tab = rng.choice(("Alarm", "Clock", "Timer"))
        with_talk(phone, rng, name)
        anywhere(phone, rng, "Clock", "Messages", inside=0.35)

    def script(phone: SimulatedPhone) -> Iterator[Intent]:
        yield from open_app(phone, "Clock")
        yield from to_tab(phone, "Alarm")
        time = next(alarm.time for alarm in phone.the(Clock).alarms if alarm.label == label)
        yield see(f"alarm:{time}")
        yield from sending(name, label)(phone)

    return Goal(
        (
            f"Look at the label of the {hour} {half} alarm and send it to {name}",
            f"Send {name} what the {hour} {half} alarm in Clock is for",
        ),
        start,
        script,
        lambda phone: is_sent(phone.the(Messages), name, label),
    )


@template("google_apps", 1.0, memory=True)
def there_and_back(slots: Slots) -> Goal:
    first, second = slots.pair(APPS)

    def start(phone: SimulatedPhone, rng: random.Random) -> None:
        anywhere(phone, rng, inside=0.0)
        if phone.front in (first, second):
            phone.press_home()
        phone.open_history.clear()

    def reached(phone: SimulatedPhone) -> bool:
        opened = [name for name in phone.open_history if name in (first, second)]
        return phone.shown == first and opened[-3:] == [first, second, first]

    return Goal(
        (f"Open {first}, then {second}, then {first} again", f"Go to {first}, look at {second} and return to {first}"),
        start,
        after_opening(first, home_for(second), tap(f"app:{second}"), home_for(first), tap(f"app:{first}")),
        reached,
    )
