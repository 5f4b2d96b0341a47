"""The device side of ADB for the simulated phone, like `adbd` on a real one.

with PhoneServer(Handset(SimulatedPhone(seed=7))) as server:
    ...                                 # adb connect 127.0.0.1:PORT, which is server.serial
    with server.handset.lock:
        task.reached(server.handset.phone)

ADB only gives access to the screen and to input. Setting up a task and checking whether it is reached use the Python
objects in this process.
"""

from vlm_agent.devices.adb_daemon.handset import Handset
from vlm_agent.devices.adb_daemon.server import PhoneServer

__all__ = ["Handset", "PhoneServer"]
