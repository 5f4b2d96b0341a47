"""Starts the word embeddings of a new model from those of a trained one.

Words that both vocabularies contain have the same embedding. Coordinates are written differently, so each starts from
the coordinate of the same axis that is nearest on the screen: in `phone_vlm_tiny` they lie near the positions that are
added to its visual tokens.
"""

from typing import cast

import torch
from transformers import PreTrainedTokenizerBase

from vlm_agent.action_languages import LanguageVocabulary
from vlm_agent.errors import CheckpointError
from vlm_agent.models.auto_ui.model import AutoUi
from vlm_agent.models.build import build_model, saved_tokenizer
from vlm_agent.models.run_layout import base_folder, checked
from vlm_agent.models.word_tokenizer import coordinate_ids
from vlm_agent.recipe.model import ModelRecipe
from vlm_agent.recipe.run import read_recipe


@torch.no_grad()
def copy_coordinates(
    base: str, model: AutoUi, tokenizer: PreTrainedTokenizerBase, language: LanguageVocabulary
) -> None:
    """Copies to each coordinate of `language` the embedding of the base's nearest one on the same axis, in place.

    Coordinates that the base's vocabulary contains keep the embedding of that token. Call it after
    `copy_word_embeddings`, which checks the base.
    """
    own, table = _words_of(base)
    theirs = read_recipe(checked(base_folder(base)).recipe).action_language.build().vocabulary()
    shared = {one.piece for one in theirs.coordinates}
    embeddings = model.t5.shared.weight
    for axis in (0, 1):
        sources = theirs.axis(axis)
        targets = [one for one in language.axis(axis) if one.piece not in shared]
        if not sources or not targets:
            continue
        places = torch.tensor([one.place for one in sources])
        nearest = [int((places - one.place).abs().argmin()) for one in targets]
        rows = torch.tensor(coordinate_ids(own, sources))[nearest]
        embeddings[coordinate_ids(tokenizer, targets)] = table[rows].to(embeddings.dtype)


@torch.no_grad()
def copy_word_embeddings(base: str, model: AutoUi, tokenizer: PreTrainedTokenizerBase) -> str:
    """Copies the embeddings of the tokens that both vocabularies contain, in place. Returns a line about them.

    `base`: the name of an embedded model, or the path of a run. Raises CheckpointError if its embeddings have another
    width, or no token is shared, and what `build_model` raises.
    """
    own, table = _words_of(base)
    embeddings = model.t5.shared.weight
    if table.shape[1] != embeddings.shape[1]:
        raise CheckpointError(
            f"model.word_embeddings {base}: its embeddings have {table.shape[1]} numbers and d_model is "
            f"{embeddings.shape[1]}; set d_model to {table.shape[1]}, or remove word_embeddings"
        )
    theirs, ours = own.get_vocab(), tokenizer.get_vocab()
    shared = sorted(theirs.keys() & ours.keys())
    if not shared:
        raise CheckpointError(f"model.word_embeddings {base}: no token is in both vocabularies; remove word_embeddings")
    embeddings[[ours[token] for token in shared]] = table[[theirs[token] for token in shared]].to(embeddings.dtype)
    return f"word embeddings: {len(shared)} of {len(ours)} tokens start from {base}'s"


def _words_of(base: str) -> tuple[PreTrainedTokenizerBase, torch.Tensor]:
    """The base's tokenizer, and its table of embeddings (tokens, width)."""
    tokenizer = saved_tokenizer(checked(base_folder(base)))
    model = build_model(ModelRecipe(base=base), tokenizer)
    return tokenizer, cast("torch.Tensor", model.get_input_embeddings().weight)
