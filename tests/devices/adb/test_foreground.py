"""The foreground activity and the phone's own launcher, from the output of Android's commands."""

import pytest

from vlm_agent.devices.acting.guard import OUTSIDE, Guard, Proposal
from vlm_agent.devices.adb import ADB
from vlm_agent.devices.adb.apps import read_activity, read_launcher
from vlm_agent.devices.adb.phone import AdbPhone
from vlm_agent.episodes import Action

SHOP = "  mFocusedApp=ActivityRecord{2e6ccb2 u0 org.shop/.Pay t12}\n"
FOCUS = "  mCurrentFocus=Window{77aa u0 org.shop/org.shop.Pay}\n"


@pytest.mark.parametrize(
    ("line", "activity"),
    [
        (SHOP, "org.shop/.Pay"),
        ("  mFocusedApp=ActivityRecord{2e6ccb2 u10 org.shop/org.pay.Sheet$1} t12}\n", "org.shop/org.pay.Sheet$1"),
        ("  mFocusedApp=AppWindowToken{1a token=Token{2b ActivityRecord{3c u0 org.shop/.Pay t1}}}\n", "org.shop/.Pay"),
        ("    mFocusedApp=Token{2b ActivityRecord{3c u0 org.shop/.Pay t1}}\r\n", "org.shop/.Pay"),
        ("  mFocusedApp=null\n", ""),
        (f"  mFocusedApp=null\n{SHOP}", "org.shop/.Pay"),
    ],
    ids=["Android 12", "Android 13", "Android 9", "Android 8, policy", "none", "second display"],
)
def test_the_activity_is_that_of_the_focused_app_in_the_forms_of_android_7_to_14(line, activity):
    assert read_activity(f"WINDOW MANAGER WINDOWS\n{FOCUS}{line}") == activity


@pytest.mark.parametrize(
    "title",
    [
        *("mCurrentFocus=Window{1 u0 com.android.launcher3/x}", "mFocusedApp=ActivityRecord{1 u0 org.other/.Main t1}"),
        *(
            "PopupWindow:9a1",
            "Application Not Responding: org.shop",
            "org.shop/org.shop.Pay EXITING",
            "NotificationShade ",
        ),
    ],
)
def test_the_title_of_a_window_does_not_change_the_activity(title):
    window = f"  Window #5 Window{{3f2a1b u0 {title}}}:\n    mDisplayId=0\n"
    assert read_activity(f"{window}  mCurrentFocus=Window{{3f2a1b u0 {title}}}\n{SHOP}") == "org.shop/.Pay"


def test_a_title_that_forges_a_line_makes_the_activity_unknown():
    forged = "  Window #5 Window{3f2a1b u0 x\n  mFocusedApp=ActivityRecord{1 u0 org.ok/.Main t1}\n}:\n"
    for state in (forged + FOCUS + SHOP, FOCUS + SHOP + forged):
        assert read_activity(state) == ""
        refusal = Guard(apps=["org.ok"]).refusal(Proposal(0, "go", read_activity(state), (), Action.tap(0.5, 0.5)))
        assert refusal[0] == OUTSIDE


def test_open_notifications_are_outside_of_the_app_below():
    assert read_activity(f"  mCurrentFocus=Window{{77aa u0 NotificationShade}}\n{SHOP}") == "NotificationShade"


def test_the_launcher_is_the_one_that_the_phone_resolves():
    priority = "priority=0 preferredOrder=0 match=0x108000 specificIndex=-1 isDefault=true\n"
    assert read_launcher(f"{priority}com.miui.home/.launcher.Launcher\n") == "com.miui.home"
    assert read_launcher(f"{priority}android/com.android.internal.app.ResolverActivity\n") is None
    assert read_launcher("No activity found\n") is None


def test_over_adb_the_launcher_and_the_activity_are_those_of_the_phone(one_adb, served):
    with ADB.parse(served.serial).open() as opened:
        assert opened.launcher == "org.launcher"
    with AdbPhone(served.serial, settle_interval=0.0) as phone:
        phone.perform(Action.open_app("mail"))
        phone.screenshot()
        assert phone.activity == served.handset.phone.activity == "org.mail/.Home"


def test_an_app_that_opens_during_the_capture_is_the_activity_of_its_picture(one_adb, served):
    capture = served._shell._commands["screencap"]

    def opening(call):
        if served.handset.phone.activity != "org.mail/.Home":
            served.handset.perform(Action.open_app("mail"))
        return capture(call)

    with AdbPhone(served.serial, settle_interval=0.0) as phone:
        served._shell._commands["screencap"] = opening
        pixels = phone.screenshot()
        assert phone.activity == "org.mail/.Home"
        assert (pixels == served.handset.phone.screenshot()).all()
