"""Tokens and money of calls: prices, totals, and an estimate of a request's tokens before it is sent."""

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image
from pydantic import NonNegativeFloat

from vlm_agent.settings import Section

PATCH = 28
"""Side in pixels of the part of a picture that is one token, as for Qwen2-VL and Qwen2.5-VL. Other models differ."""

BYTES_PER_TOKEN = 4
"""UTF-8 bytes of text per token, about right for English."""

TOKENS_PER_MESSAGE = 5
"""Role and delimiters of a chat template."""

_MILLION = 1_000_000


class Price(Section):
    """Money per million tokens, in any one currency: `read` for the prompt, `written` for the reply."""

    read: NonNegativeFloat
    written: NonNegativeFloat


@dataclass(frozen=True)
class Expense:
    """A number of calls, and the tokens that they read and wrote."""

    calls: int = 0
    read: int = 0
    written: int = 0

    def __add__(self, other: "Expense") -> "Expense":
        return Expense(self.calls + other.calls, self.read + other.read, self.written + other.written)

    def times(self, factor: float) -> "Expense":
        return Expense(round(self.calls * factor), round(self.read * factor), round(self.written * factor))

    def money(self, price: Price) -> float:
        return (self.read * price.read + self.written * price.written) / _MILLION

    def in_words(self, price: Price | None) -> str:
        """`1,200 calls, 2,400,000 tokens read, 60,000 written, cost 6.60`; without a price, without the cost."""
        words = f"{self.calls:,} calls, {self.read:,} tokens read, {self.written:,} written"
        return words if price is None else f"{words}, cost {amount(self.money(price))}"


def amount(money: float) -> str:
    """Two decimals, and more for less than a unit: 12.50, 0.0317."""
    return f"{money:.2f}" if money == 0 or money >= 1 else f"{money:.{min(2 - math.floor(math.log10(money)), 9)}f}"


def estimated_tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    """Tokens of a prompt, estimated without the model's tokenizer.

    A token per `BYTES_PER_TOKEN` bytes of text and per `PATCH` x `PATCH` pixels of a picture, and `TOKENS_PER_MESSAGE`
    a message. A server's own count (`Completion.tokens`) replaces the estimate where it is known.
    """
    return sum(TOKENS_PER_MESSAGE + _content_tokens(message["content"]) for message in messages)


def _content_tokens(content: str | Sequence[Mapping[str, Any]]) -> int:
    if isinstance(content, str):
        return text_tokens(content)
    return sum(
        text_tokens(part["text"]) if part["type"] == "text" else picture_tokens(_size(part["image_url"]["url"]))
        for part in content
    )


def text_tokens(text: str) -> int:
    return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN)


def picture_tokens(size: tuple[int, int]) -> int:
    """`size`: (height, width) in pixels."""
    return math.ceil(size[0] / PATCH) * math.ceil(size[1] / PATCH)


def _size(url: str) -> tuple[int, int]:
    """(height, width) of the picture in a data URL, whose pixels are not decoded."""
    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as image:
        return image.height, image.width
