"""The device side of ADB for the simulated phone, like `adbd` on a real one.

with PhoneServer(Handset(SimulatedPhone(seed=7))) as server:
    ...                                 # adb connect 127.0.0.1:PORT, which is server.serial
    with server.handset.lock:
        task.reached(server.handset.phone)

ADB only provides access to the screen and to input. The Python objects in this process set up a task and check whether
it is reached.
"""

from vlm_agent.simulator.adb_daemon.handset import Handset
from vlm_agent.simulator.adb_daemon.server import PhoneServer

__all__ = ["Handset", "PhoneServer"]
