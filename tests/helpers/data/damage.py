"""Every way in which a record of AITW can be damaged that we know of: each of these costs its episode.

The damage of a payload gives it a checksum that fits, as a broken writer would; damage of the framing does not.
"""

import random
import struct
import zlib
from collections.abc import Callable

import numpy as np

from vlm_agent.datasets.formats.tf_example import encode_example, parse_example
from vlm_agent.datasets.formats.tfrecord import masked_crc32c
from vlm_agent.datasets.sources.aitw import encode_step
from vlm_agent.episodes import Episode

Features = dict[str, list | np.ndarray]

TEXTS = ("current_activity", "device_type", "episode_id", "goal_info")
INTEGERS = (
    "android_api_level",
    "episode_length",
    "image/channels",
    "image/height",
    "image/width",
    "results/action_type",
    "step_id",
)
ELEMENTS = tuple(f"image/ui_annotations_{name}" for name in ("positions", "text", "ui_types"))
POINTS = ("results/yx_touch", "results/yx_lift")
BOX = np.asarray([0.1, 0.1, 0.2, 0.2], np.float32)
NOT_UTF8 = (b"\xff", b"caf\xe9", b"\xed\xa0\x80", b"\xc0\x80", b"ok\xf0\x9f\x99")
HUGE = (1 << 31, (1 << 63) - 1, -(1 << 63), -1, 0)


def features_of(payload: bytes) -> Features:
    names = (*TEXTS, *INTEGERS, *ELEMENTS, *POINTS, "image/encoded", "results/type_action")
    return {
        name: values if kind != "bytes" else [bytes(value) for value in values]
        for name, (kind, values) in parse_example(payload, names).items()
    }


def _as_gesture(features: Features) -> Features:
    middle = np.asarray([0.5, 0.5], np.float32)
    return features | {"results/action_type": [4], **dict.fromkeys(POINTS, middle)}


def _missing(rng, features):
    del features[rng.choice(sorted(features))]


def _mistyped(rng, features):
    name = rng.choice([*TEXTS, *INTEGERS, "image/encoded", *ELEMENTS])
    wrong = [b"7"] if name in INTEGERS or name.endswith("positions") else [7]
    features[name] = rng.choice([wrong, np.asarray([7], np.float32)]) if not name.endswith("positions") else wrong


def _mistyped_points(rng, features):
    features |= _as_gesture(features) | {rng.choice(POINTS): rng.choice([[0, 1], [b"0.5", b"0.5"]])}


def _wrong_count(rng, features):
    name = rng.choice([*TEXTS, *INTEGERS, "image/encoded"])
    features[name] = [*features[name]] * 2 if name in TEXTS else rng.choice([[], [*features[name]] * 2])


def _wrong_shape(rng, features):
    name = rng.choice(["image/height", "image/width", "image/channels"])
    (value,) = features[name]
    features[name] = [rng.choice([value + 1, value - 1, value * 2, *HUGE])]


def _wrong_pixels(rng, features):
    (pixels,) = features["image/encoded"]
    others = [pixels[:-1], pixels + b"\0", b"", b"\x89PNG\r\n\x1a\n", zlib.compress(pixels)]
    features["image/encoded"] = [rng.choice(others)]


def _not_text(rng, features):
    features[rng.choice(TEXTS)] = [rng.choice(NOT_UTF8)]


def _not_text_in_elements(rng, features):
    features |= {ELEMENTS[0]: BOX, ELEMENTS[1]: [b"fine"], ELEMENTS[2]: [b"TEXT"]}
    features[rng.choice(ELEMENTS[1:])] = [rng.choice(NOT_UTF8)]


def _not_text_typed(rng, features):
    features |= {"results/action_type": [3], "results/type_action": [rng.choice(NOT_UTF8)]}


def _two_texts_typed(rng, features):
    features |= {"results/action_type": [3], "results/type_action": [b"one", b"two"]}


def _elements_apart(rng, features):
    features |= {ELEMENTS[0]: np.tile(BOX, 3)[: rng.choice([1, 3, 4, 5, 8, 11])]}
    features |= {ELEMENTS[1]: [b"a"] * 3, ELEMENTS[2]: [b"TEXT"] * rng.choice([2, 3, 4])}


def _no_number(rng, features):
    bad = rng.choice([np.nan, np.inf, -np.inf])
    if rng.random() < 0.5:
        features |= {ELEMENTS[0]: np.where([0, 0, 1, 0], bad, BOX), ELEMENTS[1]: [b"a"], ELEMENTS[2]: [b"TEXT"]}
    else:
        features |= _as_gesture(features) | {rng.choice(POINTS): np.asarray([bad, 0.5], np.float32)}


def _no_point(rng, features):
    point = rng.choice([[], [0.5], [0.5] * 3, [0.5, 1.5], [-0.01, 0.5], [3e38, 0.5]])
    features |= _as_gesture(features) | {rng.choice(POINTS): np.asarray(point, np.float32)}


def _unknown_action(rng, features):
    features["results/action_type"] = [rng.choice([1, 2, 8, 9, 12, 99, *HUGE])]


def _wrong_length(rng, features):
    (length,) = features["episode_length"]
    features["episode_length"] = [rng.choice([length + 1, length - 1, *HUGE])]


def _wrong_step(rng, features):
    (step_id,) = features["step_id"]
    features["step_id"] = [rng.choice([step_id + 1, step_id - 1 if step_id else 1, -1, 1 << 40, 9_999])]


def _wrong_id(rng, features):
    features["episode_id"] = [rng.choice([b"", f"nobody {rng.random()}".encode(), features["episode_id"][0] + b" "])]


def _wrong_level(rng, features):
    features["android_api_level"] = [rng.choice([1 << 31, -(1 << 31) - 1, (1 << 63) - 1])]


OF_FEATURES: tuple[Callable[[random.Random, Features], None], ...] = (
    _missing,
    _mistyped,
    _mistyped_points,
    _wrong_count,
    _wrong_shape,
    _wrong_pixels,
    _not_text,
    _not_text_in_elements,
    _not_text_typed,
    _two_texts_typed,
    _elements_apart,
    _no_number,
    _no_point,
    _unknown_action,
    _wrong_length,
    _wrong_step,
    _wrong_id,
    _wrong_level,
)


def _cut(rng, payload):
    return payload[: rng.randrange(len(payload))]


def _more(rng, payload):
    """A field number 0, wire types that do not exist, a group, a number without end, a length beyond the end."""
    ends = [b"\0\1", b"\x0e", b"\x0f", b"\x0b", b"\x0c", b"\xff" * 11, b"\x12\5abc", b"\x15\0"]
    return payload + rng.choice(ends)


def _other_tag(rng, payload):
    return bytes([rng.choice([0x00, 0x08, 0x0B, 0x0F, 0x12, 0x1A, 0x0D])]) + payload[1:]


def _other_size(rng, payload):
    return payload[:1] + bytes([payload[1] ^ 1 << rng.randrange(7)]) + payload[2:]


def _no_message(rng, payload):
    return rng.choice([b"", b"\0", b"\n", rng.randbytes(200), b"\xff" * 50, b"\x0a\x00", payload[::-1]])


OF_WIRE = (_cut, _more, _other_tag, _other_size, _no_message)


def framed(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    checksums = (struct.pack("<I", masked_crc32c(data)) for data in (length, payload))
    return length + next(checksums) + payload + next(checksums)


def flip(rng: random.Random, record: bytes, start: int, end: int) -> bytes:
    """With one bit of the bytes from `start` to `end` turned."""
    at = rng.randrange(start % len(record), end if end > 0 else len(record) + end)
    return record[:at] + bytes([record[at] ^ 1 << rng.randrange(8)]) + record[at + 1 :]


def damaged(rng: random.Random, episode: Episode, number: int, kind: Callable | None) -> bytes:
    """The framed record of a step, damaged; None as `kind` is a payload that its checksum does not fit."""
    payload = encode_step(episode, number)
    if kind is None:
        return flip(rng, framed(payload), 12, 0)
    if kind in OF_WIRE:
        return framed(kind(rng, payload))
    features = features_of(payload)
    kind(rng, features)
    return framed(encode_example(features))
