"""Texts from pixels: reads a word that was drawn."""

from vlm_agent.cli.doctor.check import BrokenError, Check, require_package
from vlm_agent.files.installation import install_line

_WORD = "Settings"


def _ocr() -> str:
    from importlib.metadata import version

    from vlm_agent.screens.text import PACKAGES, RapidOcrSettings

    for package in PACKAGES:
        require_package(package)
    import font_roboto
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", (360, 160), "white")
    font = ImageFont.truetype(font_roboto.font_files["Roboto"], 40)
    ImageDraw.Draw(picture).text((60, 50), _WORD, fill="black", font=font)
    found = [text.text for text in RapidOcrSettings().load().read(np.asarray(picture))]
    if found != [_WORD]:
        raise BrokenError(f"a picture of the word {_WORD!r} is read as {found}")
    return f"RapidOCR {version('rapidocr')}"


OCR = Check(
    _ocr,
    "reads a drawn word",
    ("inspect --screen", "act and evaluate with --elements read", "VisionTasker"),
    install_line("screens"),
)
