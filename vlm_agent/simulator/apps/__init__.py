"""Apps, one file each. An app that is not in `APP_CLASSES` is a `GenericApp`."""

from vlm_agent.simulator.app import App
from vlm_agent.simulator.apps.browser import Browser
from vlm_agent.simulator.apps.calendar import Calendar
from vlm_agent.simulator.apps.clock import Clock
from vlm_agent.simulator.apps.launcher import Launcher
from vlm_agent.simulator.apps.mail import Mail
from vlm_agent.simulator.apps.maps import Maps
from vlm_agent.simulator.apps.messages import Contacts, Messages
from vlm_agent.simulator.apps.news import News
from vlm_agent.simulator.apps.notes import Notes
from vlm_agent.simulator.apps.photos import Photos
from vlm_agent.simulator.apps.settings import Settings
from vlm_agent.simulator.apps.shop import ShopApp
from vlm_agent.simulator.apps.store import Store

APP_CLASSES: dict[str, type[App]] = {
    "Browser": Browser,
    "Calendar": Calendar,
    "Clock": Clock,
    "Contacts": Contacts,
    "Launcher": Launcher,
    "Mail": Mail,
    "Maps": Maps,
    "Messages": Messages,
    "News": News,
    "Notes": Notes,
    "Photos": Photos,
    "Settings": Settings,
    "Shop": ShopApp,
    "Store": Store,
}
