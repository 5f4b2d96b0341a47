"""uiautomator2 pushes a server to the phone and starts it, which the simulated phone refuses with the reason."""

import adbutils
import pytest
import uiautomator2
from uiautomator2.exceptions import LaunchUiAutomationError


def test_it_fails_to_connect_with_what_the_phone_lacks(one_adb, served):
    """It waits 30 s for a server that runs ("not ready"); the answer to the start ends the wait ("quit")."""
    one_adb.run("connect", served.serial)
    device = adbutils.AdbClient(port=one_adb.port).device(served.serial)
    with pytest.raises(LaunchUiAutomationError, match=r"quit.*app_process: .*the simulated phone runs no Android code"):
        uiautomator2.connect(device)
    assert served.handset.files["/data/local/tmp/u2.jar"].data.startswith(b"PK")
    assert ("app_process", "/", "com.wetest.uia2.Main", "-p", "9008") in {
        words[1:] for words in served.handset.commands
    }
    assert not served.handset.actions
