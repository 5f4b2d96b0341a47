"""What a server of tests answers to the requests of an annotation, and the files that it writes."""

import base64
import hashlib
import io
import json
from pathlib import Path

from PIL import Image


def parts(body: dict) -> tuple[str, list[str]]:
    """The text of a request, and a digest of each of its pictures."""
    (message,) = body["messages"]
    text = "\n".join(part["text"] for part in message["content"] if part["type"] == "text")
    urls = [part["image_url"]["url"] for part in message["content"] if part["type"] == "image_url"]
    for url in urls:
        Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).verify()
    return text, [hashlib.sha256(url.encode()).hexdigest()[:6] for url in urls]


def kind(body: dict) -> str:
    """Which of CoAT's texts a request asks for, by words of the shipped prompts."""
    text, _ = parts(body)
    words = {
        "Describe it": "screen",
        "Name the element": "action",
        "what the agent thinks": "think",
        "two pictures": "result",
    }
    (found,) = [name for word, name in words.items() if word in text]
    return found


def written(body: dict) -> str:
    """A text that depends on the whole request."""
    return f"{kind(body)} {hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:8]}"


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of an annotation but the replies, which name the seconds that they took."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "calls" not in path.parts and path.name not in ("lock", "plan.json")
    }
