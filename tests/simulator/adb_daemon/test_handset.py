"""A phone that is off or locked records what it receives and does nothing; records are bounded."""

import tracemalloc

import pytest

from vlm_agent.episodes import Action
from vlm_agent.simulator import SimulatedPhone
from vlm_agent.simulator.adb_daemon import Handset
from vlm_agent.simulator.adb_daemon.record import MAX_RECORDED_BYTES, MAX_RECORDS, Record
from vlm_agent.simulator.adb_daemon.shell.commands import shell_of
from vlm_agent.simulator.adb_daemon.shell.words import MAX_LINE


@pytest.mark.parametrize(
    ("is_awake", "is_locked", "reacts"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_only_a_phone_that_is_on_and_unlocked_reacts_to_touches_and_keys(is_awake, is_locked, reacts):
    handset, performed, pressed = Handset(SimulatedPhone(7)), [], []
    handset.listeners.append(performed.append)
    handset.is_awake, handset.is_locked = is_awake, is_locked
    before = handset.phone.screenshot()
    swipe = Action.swipe((0.8, 0.5), (0.2, 0.5))
    handset.perform(swipe)
    handset.press_key(lambda: pressed.append("key"))
    assert list(handset.actions) == [swipe]
    assert performed == [swipe] * reacts
    assert pressed == ["key"] * reacts
    assert reacts or (handset.phone.screenshot() == before).all()


def test_long_lines_and_long_texts_do_not_fill_the_memory():
    handset = Handset(SimulatedPhone(7))
    handset.is_awake = False
    tracemalloc.start()
    try:
        for number in range(600):  # 72 MB
            handset.commands.append(("echo", str(number), "x" * 120_000 + str(number)))
            handset.perform(Action.type_text(f"{number} {'x' * 120_000}"))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 2.2 * MAX_RECORDED_BYTES
    assert handset.commands[-1][:2] == ("echo", "599")
    assert handset.actions[-1].text.startswith("599 ")
    assert len(handset.commands) > 200


def test_many_short_words_count_with_the_memory_that_they_take():
    handset = Handset(SimulatedPhone(7))
    for number in range(40):
        handset.commands.append(tuple(str(number * 1_000_000 + word) for word in range(20_000)))
    assert len(handset.commands) < MAX_RECORDED_BYTES / (20_000 * 50)


def test_a_record_drops_the_oldest_and_keeps_the_newest_item():
    record: Record[str] = Record(len)
    for number in range(MAX_RECORDS + 5):
        record.append(str(number))
    assert len(record) == MAX_RECORDS
    assert record[0] == "5"
    record.append("x" * (MAX_RECORDED_BYTES + 1))
    assert len(record) == 1
    record.append("y")
    assert list(record) == ["y"]
    record.clear()
    assert not record


def test_a_line_or_script_that_is_too_long_is_refused_before_it_is_parsed():
    handset = Handset(SimulatedPhone(7))
    shell = shell_of(handset)
    long = "a;" * (MAX_LINE // 2) + "a"
    refused = shell.run(long)
    assert refused.status == 126
    assert refused.written == ((2, b"/system/bin/sh: Argument list too long\n"),)
    assert not handset.commands
    handset.files.write("/sdcard/long.sh", long.encode())
    assert b"File too large" in b"".join(data for _, data in shell.run("sh /sdcard/long.sh").written)
    assert shell.run('sh -c "$(cat /sdcard/long.sh)"; echo never').status == 126
    assert not any(words[:1] == ("echo",) for words in handset.commands)
    assert shell.run("echo " + "a" * 10_000).status == 0
