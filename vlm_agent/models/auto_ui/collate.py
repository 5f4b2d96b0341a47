"""Sentences to batches of an encoder-decoder."""

from collections.abc import Sequence

import numpy as np
import torch

from vlm_agent.sentences import IGNORED, NO_ACTION, Sentence
from vlm_agent.sentences.packing import supervision_columns, target_places


def collate(sentences: list[Sentence]) -> dict:
    """The keyword arguments of `AutoUi.forward`, and the columns beside `shift_labels`, (B, T).

    The source of a sentence is what precedes its first label, the target is the rest. Plain numbers, which stay on the
    CPU: `source_lengths`, `target_lengths` in tokens and `feature_counts`, the feature vectors, of each sentence.
    """
    starts = [source_length(sentence) for sentence in sentences]
    targets = [_target(sentence, start) for sentence, start in zip(sentences, starts, strict=True)]
    roles, weights = (_padded([getattr(one, name) for one in targets], fill) for name, fill in _COLUMNS)
    columns = supervision_columns(roles, weights)
    labels = torch.tensor(_padded([one.labels for one in targets], IGNORED))
    return {
        **sources([sentence.input_ids[:start] for sentence, start in zip(sentences, starts, strict=True)]),
        **screen_features([sentence.screens for sentence in sentences]),
        "shift_labels": labels,
        "target_places": target_places(labels, shift=False),
        "kinds": torch.tensor(_padded([one.kinds for one in targets], NO_ACTION)),
        "about": [sentence.about for sentence in sentences],
        "source_lengths": starts,
        "target_lengths": [len(one) for one in targets],
        "feature_counts": [sum(len(screen) for screen in sentence.screens) for sentence in sentences],
        **{name: column.view(len(targets), -1) for name, column in columns.items()},
    }


_COLUMNS = (("roles", 0), ("weights", 1.0))
"""Columns of a sentence that a batch contains where they differ from the default, and their padding."""


def sources(ids: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    """`input_ids` and `attention_mask`, int64 (B, L), padded on the right."""
    return {
        "input_ids": torch.tensor(_padded(ids, 0)),
        "attention_mask": torch.tensor(_padded([[1] * len(one) for one in ids], 0)),
    }


def screen_features(screens: Sequence[Sequence[np.ndarray]]) -> dict[str, torch.Tensor]:
    """`features` (B, K, size) of each sentence's screens, (T, size) each, behind one another.

    Where some have more screens than others, also `feature_mask` bool (B, K).
    """
    vectors = [torch.from_numpy(np.concatenate(some)) for some in screens]
    lengths = torch.tensor([len(one) for one in vectors])
    features = torch.nn.utils.rnn.pad_sequence(vectors, batch_first=True)
    mask = torch.arange(features.shape[1]) < lengths[:, None]
    return {"features": features} if bool(mask.all()) else {"features": features, "feature_mask": mask}


def source_length(sentence: Sentence) -> int:
    """The number of tokens before the first label."""
    return next((at for at, label in enumerate(sentence.labels) if label != IGNORED), len(sentence))


def _target(sentence: Sentence, start: int) -> Sentence:
    target = Sentence()
    for name in ("input_ids", "labels", "kinds", "roles", "weights"):
        setattr(target, name, getattr(sentence, name)[start:])
    if target.labels != target.input_ids:
        raise ValueError(f"{sentence.about}: a token of the target has no label, so the decoder would not read it")
    return target


def _padded(rows: Sequence[Sequence[float]], padding: float) -> list[list]:
    longest = max(map(len, rows))
    return [[*row, *[padding] * (longest - len(row))] for row in rows]
