"""The device's side of ADB, for the simulated phone: what `adbd` is on a real one.

with PhoneServer(Handset(SimulatedPhone(seed=7))) as server:
    ...                                 # adb connect 127.0.0.1:PORT, which is server.serial
    with server.handset.lock:
        task.reached(server.handset.phone)

Over ADB an agent can see and touch the phone, no more. Setting up a task and asking whether it is done goes by the
Python objects, in this process.
"""

from vlm_agent.devices.adb_daemon.handset import Handset
from vlm_agent.devices.adb_daemon.server import PhoneServer

__all__ = ["Handset", "PhoneServer"]
