"""The plan of an extraction: what decides its output. A second run with a different plan is refused."""

from dataclasses import dataclass
from pathlib import Path

from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.errors import DatasetError
from vlm_agent.files.jobs import Job
from vlm_agent.models.features.store.layout import DTYPE, check_extractor, checked, shards_digest
from vlm_agent.recipe.model import FeatureSettings

WORK = ".features"


@dataclass(frozen=True)
class FeaturePlan:
    """`digest`: of the extractor. `shape`: (T, D). `batch_size`: screens in a forward pass on a GPU; a kernel that is
    chosen by the batch may change the last bit of a feature.
    """

    shards: Path
    settings: FeatureSettings
    digest: str
    shape: tuple[int, int]
    precision: str
    batch_size: int
    shards_sha256: str

    def extractor(self) -> dict:
        """The extractor as it is written to the manifest."""
        return {**self.settings.model_dump(), "digest": self.digest, "precision": self.precision}

    def content(self) -> dict:
        """The plan as JSON. `described` decides the output; the shards' path may differ between machines."""
        described = {
            "extractor": self.extractor(),
            "tokens": self.shape[0],
            "size": self.shape[1],
            "dtype": DTYPE,
            "batch_size": self.batch_size,
            "shards": {"manifest_sha256": self.shards_sha256},
        }
        return {"described": described, "where": str(self.shards.absolute())}

    @classmethod
    def read(cls, output: Path) -> "FeaturePlan":
        """The plan in a folder. Raises DatasetError where it is missing or damaged."""
        content = job(output).read_plan()
        try:
            _check(content)
        except ValueError as error:
            raise DatasetError(
                f"{job(output).plan_path} is damaged: {error}; remove {output} and start again"
            ) from None
        described, extractor = content["described"], dict(content["described"]["extractor"])
        digest, precision = extractor.pop("digest"), extractor.pop("precision")
        return cls(
            Path(content["where"]),
            FeatureSettings(**extractor),
            digest,
            (described["tokens"], described["size"]),
            precision,
            described["batch_size"],
            described["shards"]["manifest_sha256"],
        )


def _check(content: dict) -> None:
    """Raises ValueError, which names the key, for a missing key or a value of another type."""
    check_extractor(content, "described.extractor")
    for key in ("where", "described.extractor.precision", "described.shards.manifest_sha256"):
        checked(content, key, str)
    for key in ("described.tokens", "described.size", "described.batch_size"):
        checked(content, key, int)


def job(output: Path) -> Job:
    """The resumable output folder of an extraction."""
    return Job(output, "an extraction of features", f"{WORK}/plan.json", f"{WORK}/lock", identity_key="described")


def plan_of(
    dataset: ShardDataset, settings: FeatureSettings, digest: str, shape: tuple[int, int], precision: str, batch: int
) -> FeaturePlan:
    return FeaturePlan(dataset.directory, settings, digest, shape, precision, batch, shards_digest(dataset))
