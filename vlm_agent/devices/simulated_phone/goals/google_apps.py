"""The phone's own apps: settings, clock, calendar, and going from one to another."""

from vlm_agent.devices.simulated_phone.apps.clock import MINUTES, Alarm
from vlm_agent.devices.simulated_phone.apps.settings import CHOICES
from vlm_agent.devices.simulated_phone.expert import HOME, open_app, see, swipe, tap, type_text
from vlm_agent.devices.simulated_phone.goals.people import send_message, with_talk
from vlm_agent.devices.simulated_phone.goals.starts import anywhere, begin
from vlm_agent.devices.simulated_phone.tasks import Goal, Slots, template
from vlm_agent.devices.simulated_phone.words import APPS, CITIES, DAYS, LABELS, NAMES, SWITCHES

HOURS = range(1, 13)


@template("google_apps", 1.5)
def turn_switch(slots: Slots) -> Goal:
    name, state = slots.pick(SWITCHES), slots.pick(("on", "off"))

    def start(phone, rng):
        phone.switches[name] = state == "off"
        begin(phone, rng, "Settings")

    def plan(phone):
        yield from open_app(phone, "Settings")
        yield tap(name)

    return Goal(
        (f"Turn {state} {name}", f"Turn {name} {state} in Settings", f"Please turn {state} {name.lower()}"),
        start,
        plan,
        lambda phone: phone.switches[name] is (state == "on"),
    )


@template("google_apps", 0.8)
def choose_setting(slots: Slots) -> Goal:
    page = slots.pick(CHOICES)
    choice = slots.pick(CHOICES[page])

    def start(phone, rng):
        settings = phone.app("Settings")
        settings.chosen[page] = rng.choice([other for other in CHOICES[page] if other != choice])
        begin(phone, rng, "Settings")

    def plan(phone):
        yield from open_app(phone, "Settings")
        yield tap(page)
        yield tap(choice)

    return Goal(
        (f"Set {page} to {choice}", f"Go to {page} in Settings and choose {choice}"),
        start,
        plan,
        lambda phone: phone.app("Settings").chosen[page] == choice,
    )


@template("google_apps", 1.3)
def quick_switch(slots: Slots) -> Goal:
    name, state = slots.pick(SWITCHES), slots.pick(("on", "off"))

    def start(phone, rng):
        phone.switches[name] = state == "off"
        if name not in phone.quick:
            phone.quick[rng.randrange(len(phone.quick))] = name
        anywhere(phone, rng)

    def plan(phone):
        if not phone.shade:
            yield swipe("shade")
        yield tap(f"quick:{name}")

    return Goal(
        (f"Turn {state} {name} in the quick settings", f"Pull down the quick settings and turn {name} {state}"),
        start,
        plan,
        lambda phone: phone.switches[name] is (state == "on"),
    )


@template("google_apps", 1.5)
def set_alarm(slots: Slots) -> Goal:
    hour, minute, half = slots.pick(HOURS), slots.pick(MINUTES), slots.pick(("AM", "PM"))
    time = f"{hour}:{minute:02d} {half}"

    def plan(phone):
        yield from open_app(phone, "Clock")
        clock = phone.app("Clock")
        if clock.tab != "Alarm":
            yield tap("tab:Alarm")
        yield tap("new_alarm")
        yield tap(f"hour:{hour}")
        if minute:
            yield tap(f"minute:{minute}")
        if half == "PM":
            yield tap("PM")
        yield tap("ok")

    return Goal(
        (f"Set an alarm for {time}", f"Wake me up at {time}", f"Add a {time} alarm in Clock"),
        lambda phone, rng: anywhere(phone, rng, "Clock", inside=0.3),
        plan,
        lambda phone: time in phone.app("Clock").saved,
    )


@template("google_apps", 1.3)
def add_clock(slots: Slots) -> Goal:
    city = slots.pick(CITIES)

    def start(phone, rng):
        clock = phone.app("Clock")
        clock.zones = [zone for zone in clock.zones if zone != city]
        anywhere(phone, rng, "Clock")

    def plan(phone):
        yield from open_app(phone, "Clock")
        if phone.app("Clock").tab != "Clock":
            yield tap("tab:Clock")
        yield tap("add_city")
        yield tap("city")
        yield type_text(city)
        yield tap(f"city:{city}")

    return Goal(
        (f"Add {city} to the world clock", f"Show the time in {city} in Clock"),
        start,
        plan,
        lambda phone: city in phone.app("Clock").zones,
    )


@template("google_apps", 0.9)
def see_event(slots: Slots) -> Goal:
    day, event = slots.pick(DAYS), slots.pick(LABELS)
    delete = slots.pick((True, False))

    def start(phone, rng):
        calendar = phone.app("Calendar")
        events = [*calendar.week[day], event]
        rng.shuffle(events)
        calendar.week[day] = {name: calendar.week[day].get(name, rng.choice(CITIES)) for name in events}
        calendar.at = min(max(0, DAYS.index(day) + rng.choice((-2, -1, -1, -1, 1, 1, 1, 2))), 6)
        anywhere(phone, rng, "Calendar", inside=0.25)

    def plan(phone):
        yield from open_app(phone, "Calendar")
        calendar = phone.app("Calendar")
        while calendar.day != day:
            yield swipe("left" if DAYS.index(day) > calendar.at else "right")
        yield tap(f"event:{event}")
        if delete:
            yield tap("delete")

    def reached(phone) -> bool:
        calendar = phone.app("Calendar")
        if delete:
            return (day, event) in calendar.deleted
        return phone.front == "Calendar" and calendar.day == day and calendar.route.about == event

    verb = "Delete" if delete else "Show"
    return Goal((f"{verb} the {event} on {day}", f"{verb} the {event} of {day} in the calendar"), start, plan, reached)


@template("google_apps", 1.1, memory=True)
def turn_off_and_on(slots: Slots) -> Goal:
    name = slots.pick(SWITCHES)
    first = slots.pick(("off", "on"))
    second = "on" if first == "off" else "off"

    def start(phone, rng):
        phone.switches[name] = first == "off"
        begin(phone, rng, "Settings", 0.3)

    def plan(phone):
        yield from open_app(phone, "Settings")
        yield tap(name)
        yield tap(name)

    return Goal(
        (f"Turn {name} {first} and {second} again", f"Turn {first} {name}, then turn it {second} again"),
        start,
        plan,
        lambda phone: phone.toggled[-2:] == [(name, first == "on"), (name, second == "on")],
    )


@template("google_apps", 1.4, memory=True)
def send_alarm_label(slots: Slots) -> Goal:
    label, name = slots.hide(LABELS), slots.pick(NAMES)
    hour, half = slots.pick(HOURS), slots.pick(("AM", "PM"))

    def start(phone, rng):
        clock = phone.app("Clock")
        minute = rng.choice(MINUTES)
        clock.alarms = [
            alarm for alarm in clock.alarms if (alarm.hour, alarm.half) != (hour, half) and alarm.label != label
        ]
        clock.alarms.insert(rng.randint(0, min(4, len(clock.alarms))), Alarm(hour, minute, half, label, True))
        clock.tab = rng.choice(("Alarm", "Clock", "Timer"))
        with_talk(phone, rng, name)
        anywhere(phone, rng, "Clock", "Messages", inside=0.35)

    def plan(phone):
        yield from open_app(phone, "Clock")
        clock = phone.app("Clock")
        if clock.tab != "Alarm":
            yield tap("tab:Alarm")
        time = next(alarm.time for alarm in clock.alarms if alarm.label == label)
        yield see(f"alarm:{time}")
        yield from send_message(phone, name, label)

    return Goal(
        (
            f"Look at the label of the {hour} {half} alarm and send it to {name}",
            f"Send {name} what the {hour} {half} alarm in Clock is for",
        ),
        start,
        plan,
        lambda phone: (name, label) in phone.app("Messages").sent,
    )


@template("google_apps", 1.0, memory=True)
def there_and_back(slots: Slots) -> Goal:
    first, second = slots.pair(APPS)

    def plan(phone):
        yield from open_app(phone, first)
        yield HOME
        yield tap(f"app:{second}")
        yield HOME
        yield tap(f"app:{first}")

    def start(phone, rng):
        anywhere(phone, rng, inside=0.0)
        if phone.front in (first, second):
            phone.press_home()
        phone.opened.clear()

    return Goal(
        (f"Open {first}, then {second}, then {first} again", f"Go to {first}, look at {second} and return to {first}"),
        start,
        plan,
        lambda phone: phone.opened[-3:] == [first, second, first],
    )
