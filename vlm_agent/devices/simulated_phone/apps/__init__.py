"""Apps, one file each. An app that is not in `APP_CLASSES` is a `GenericApp`."""

from vlm_agent.devices.simulated_phone.app import App
from vlm_agent.devices.simulated_phone.apps.browser import Browser
from vlm_agent.devices.simulated_phone.apps.calendar import Calendar
from vlm_agent.devices.simulated_phone.apps.clock import Clock
from vlm_agent.devices.simulated_phone.apps.generic import GenericApp
from vlm_agent.devices.simulated_phone.apps.launcher import Launcher
from vlm_agent.devices.simulated_phone.apps.mail import Mail
from vlm_agent.devices.simulated_phone.apps.maps import Maps
from vlm_agent.devices.simulated_phone.apps.messages import Contacts, Messages
from vlm_agent.devices.simulated_phone.apps.news import News
from vlm_agent.devices.simulated_phone.apps.notes import Notes
from vlm_agent.devices.simulated_phone.apps.photos import Photos
from vlm_agent.devices.simulated_phone.apps.settings import Settings
from vlm_agent.devices.simulated_phone.apps.shop import ShopApp
from vlm_agent.devices.simulated_phone.apps.store import Store

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


def app_class(name: str) -> type[App]:
    return APP_CLASSES.get(name, GenericApp)
