"""The closed vocabulary of the simulated phone: every name that a goal can contain.

The words are few, common, and shared by goals, subsets and screens, so that a held-out goal is a new combination of
known words.
"""

APPS = {
    "Settings": ("gear", (96, 108, 118)),
    "Browser": ("globe", (42, 112, 220)),
    "Shop": ("cart", (232, 118, 30)),
    "Store": ("play", (20, 150, 110)),
    "Clock": ("clock", (66, 92, 190)),
    "Mail": ("envelope", (208, 60, 52)),
    "Messages": ("chat", (30, 120, 235)),
    "Maps": ("pin", (40, 160, 84)),
    "News": ("newspaper", (180, 40, 70)),
    "Notes": ("note", (240, 176, 20)),
    "Contacts": ("person", (22, 132, 180)),
    "Photos": ("photo", (150, 80, 200)),
    "Calendar": ("calendar", (52, 124, 230)),
    "Phone": ("phone", (32, 160, 80)),
    "Camera": ("camera", (110, 116, 130)),
    "Files": ("folder", (60, 140, 240)),
    "Music": ("music", (240, 80, 90)),
    "Video": ("film", (214, 30, 40)),
    "Weather": ("cloud", (70, 160, 220)),
    "Calculator": ("plusminus", (70, 80, 96)),
    "Games": ("gamepad", (120, 70, 210)),
    "Wallet": ("wallet", (30, 60, 110)),
    "Books": ("book", (190, 110, 50)),
    "Health": ("heart", (236, 70, 120)),
    "Radio": ("radio", (90, 60, 150)),
    "Translate": ("letters", (60, 110, 220)),
    "Recorder": ("mic", (200, 50, 60)),
    "Bank": ("bank", (20, 100, 90)),
}
"""Preinstalled apps: name → (glyph, colour)."""

STORE_APPS = {
    "Chess": ("chess", (60, 50, 46)),
    "Puzzle": ("puzzle", (40, 150, 200)),
    "Recipes": ("fork", (220, 110, 40)),
    "Taxi": ("car", (246, 190, 20)),
    "Hotels": ("bed", (24, 70, 150)),
    "Flights": ("plane", (20, 140, 220)),
    "Fitness": ("dumbbell", (230, 70, 40)),
    "Yoga": ("flower", (190, 90, 180)),
    "Sketch": ("brush", (250, 120, 110)),
    "Scanner": ("scan", (20, 130, 130)),
    "Compass": ("compass", (190, 40, 50)),
    "Piano": ("piano", (40, 44, 60)),
    "Diary": ("lock", (150, 100, 60)),
    "Budget": ("chart", (60, 150, 60)),
    "Guitar": ("guitar", (170, 90, 40)),
    "Garden": ("leaf", (70, 160, 60)),
    "Pizza": ("pizza", (220, 70, 30)),
    "Football": ("ball", (30, 120, 60)),
    "Ocean": ("drop", (20, 110, 200)),
    "Movies": ("star", (100, 40, 120)),
    "Tea": ("mug", (120, 80, 40)),
    "Camping": ("tent", (50, 120, 70)),
    "Rain": ("umbrella", (60, 90, 180)),
    "Bikes": ("bicycle", (30, 150, 150)),
    "Running": ("shoe", (240, 90, 50)),
    "Minutes": ("watch", (50, 60, 80)),
    "Podcasts": ("headphones", (140, 60, 200)),
    "Ideas": ("bulb", (240, 180, 20)),
    "Sleep": ("moon", (50, 50, 120)),
    "Summer": ("sun", (250, 150, 30)),
    "Fashion": ("shirt", (210, 50, 110)),
    "Drinks": ("bottle", (110, 30, 60)),
    "Alerts": ("bell", (230, 60, 40)),
    "Guard": ("shield", (20, 110, 70)),
    "Lantern": ("torch", (90, 90, 100)),
    "Faces": ("smile", (240, 140, 40)),
    "Outlet": ("bag", (190, 40, 90)),
    "Watcher": ("eye", (30, 90, 140)),
    "Typing": ("keyboard", (80, 90, 110)),
    "Rooms": ("chair", (130, 90, 60)),
    "Trips": ("backpack", (40, 140, 110)),
    "Messenger": ("send", (30, 130, 230)),
}
"""Apps in the store: name → (glyph, colour)."""

SWITCHES = {
    "Wifi": "wifi",
    "Bluetooth": "bluetooth",
    "Airplane mode": "plane",
    "Mobile data": "signal",
    "Hotspot": "hotspot",
    "Location": "pin",
    "Dark theme": "moon",
    "Battery saver": "battery",
    "Vibration": "vibrate",
    "Flashlight": "torch",
    "Screen lock": "lock",
    "Backup": "cloud",
    "Roaming": "globe",
    "Night light": "bulb",
    "Auto rotate": "rotate",
    "Mute": "mute",
}
SETTING_PAGES = {
    "Display": "sun",
    "Sounds": "bell",
    "Storage": "folder",
    "Security": "shield",
    "Privacy": "eye",
    "Language": "letters",
    "Keyboard": "keyboard",
    "Accounts": "person",
    "Wallpaper": "photo",
    "System": "phone_device",
}

NAMES = [
    "Ann", "Ben", "Carla", "David", "Emma", "Felix", "Grace", "Henry", "Iris", "Jack", "Karen", "Liam", "Maria",
    "Noah", "Olga", "Paul", "Rosa", "Sam", "Tina", "Victor", "Wendy", "Zoe",
]  # fmt: skip
COLOURS = {
    "red": (214, 48, 44),
    "blue": (40, 96, 214),
    "green": (46, 150, 70),
    "black": (48, 48, 52),
    "white": (226, 228, 232),
    "yellow": (240, 190, 30),
    "brown": (140, 90, 50),
    "pink": (238, 120, 160),
    "grey": (130, 136, 144),
    "purple": (130, 70, 190),
}
PRODUCTS = {
    "lamp": "bulb",
    "chair": "chair",
    "mug": "mug",
    "backpack": "backpack",
    "headphones": "headphones",
    "shoes": "shoe",
    "watch": "watch",
    "bottle": "bottle",
    "tent": "tent",
    "guitar": "guitar",
    "umbrella": "umbrella",
    "jacket": "shirt",
    "bicycle": "bicycle",
    "car": "car",
    "ball": "ball",
    "camera": "camera",
    "book": "book",
    "keyboard": "keyboard",
}
SHOPS = {
    "Megamart": (0, 92, 190),
    "Shopzone": (222, 90, 20),
    "Goodbuy": (24, 120, 84),
    "Homely": (120, 40, 110),
    "Bazaar": (190, 30, 50),
}
SITES = {
    "Wiki": (90, 96, 104),
    "Travelog": (16, 130, 150),
    "Dailies": (160, 30, 40),
    "Townpage": (70, 80, 180),
    "Askme": (230, 130, 20),
    "Forum": (40, 130, 60),
    "Guides": (150, 90, 40),
    "Openmap": (40, 150, 120),
    "Photolab": (160, 60, 160),
}
CITIES = [
    "Paris", "London", "Rome", "Tokyo", "Berlin", "Madrid", "Vienna", "Cairo", "Delhi", "Lima", "Oslo", "Dublin",
    "Boston", "Chicago", "Denver", "Sydney", "Athens", "Prague",
]  # fmt: skip
TOPICS = ["weather", "hotels", "news", "restaurants", "museums", "flights", "parks", "history"]
SECTIONS = ["World", "Sport", "Science", "Music", "Business", "Travel", "Health"]
LABELS = [
    "gym", "lunch", "meeting", "dentist", "party", "train", "school", "coffee", "dinner", "doctor", "concert",
    "football", "holiday", "homework", "medicine", "shopping",
]  # fmt: skip
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
