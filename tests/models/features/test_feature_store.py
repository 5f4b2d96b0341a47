"""A store of features is checked before training, and finds the features of a screen by its pixels."""

import hashlib
import json
import pickle
import re
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.data.feature_shards import write_several
from helpers.models import vision_towers

from vlm_agent.cli import main
from vlm_agent.datasets.shards.dataset import ShardDataset
from vlm_agent.errors import DatasetError
from vlm_agent.files import content_of, read_checked, sha256_of, write_json
from vlm_agent.models.features import load_extractor
from vlm_agent.models.features.store import FeatureStore, PixelIndex, pixel_digest, row_sum
from vlm_agent.recipe.model import FeatureSettings

FIRST = "general/general-00000-of-00001"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return vision_towers.write("dinov2", tmp_path_factory.mktemp("dinov2"))


@pytest.fixture(scope="module")
def settings(checkpoint):
    return FeatureSettings(extractor="dinov2", checkpoint=str(checkpoint), form="patches")


@pytest.fixture(scope="module")
def made(tmp_path_factory, checkpoint):
    """A folder with `shards` and `features`."""
    folder = tmp_path_factory.mktemp("made")
    write_several(folder / "shards")
    assert main(_command(folder, checkpoint)) == 0
    return folder


def _command(folder, checkpoint, form="patches"):
    words = ["--extractor", "dinov2", "--checkpoint", str(checkpoint), "--form", form]
    return ["features", str(folder / "shards"), *words, "--output", str(folder / "features")]


@pytest.fixture
def copy(made, tmp_path):
    """A copy of `made` to damage."""
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def dataset(made):
    return ShardDataset(made / "shards", split="test")


def _complaint(folder, dataset, settings, digest=None):
    with pytest.raises(DatasetError) as raised:
        FeatureStore(folder / "features").check(dataset, settings, digest)
    return str(raised.value)


def test_every_episode_of_every_split_has_its_own_features(made, settings):
    store, extractor = FeatureStore(made / "features"), load_extractor(settings)
    for split, subset in ((None, None), ("test", None), ("train", "single")):
        dataset = ShardDataset(made / "shards", split, subset)
        store.check(dataset, settings, extractor.digest)
        assert len(dataset)
        for index, episode in enumerate(dataset):
            features = store.steps(dataset, index)
            assert isinstance(features[0], np.memmap)
            assert np.array_equal(features, extractor.extract([step.screenshot for step in episode.steps]))


def test_features_are_found_by_pixels_and_only_by_the_same_pixels(made, dataset):
    store = FeatureStore(made / "features")
    for index, episode in enumerate(dataset):
        for number, step in enumerate(episode.steps):
            assert np.array_equal(store.find(step.screenshot), store.steps(dataset, index)[number])
    changed = step.screenshot.copy()
    changed[0, 0, 0] ^= 1
    grey = np.full_like(changed, 128)
    found = [store.find(one) for one in (grey, step.screenshot, changed, step.screenshot.transpose(1, 0, 2))]
    assert [one is not None for one in found] == [False, True, False, False]


def test_features_are_found_in_more_shards_than_a_process_may_open_files(tmp_path):
    shards = 300
    about = {"extractor": "phone_vlm_tiny", "checkpoint": None, "form": "pooled", "digest": "", "precision": "float32"}
    screens = [np.full((1, 1, 3), (n // 256, n % 256, 0), np.uint8) for n in range(shards)]
    for number, screen in enumerate(screens):
        np.save(tmp_path / f"{number}.npy", np.full((1, 1, 3), number, np.float16))
        np.save(tmp_path / f"{number}.pixels.npy", np.frombuffer(pixel_digest(screen), np.uint8)[None])
        np.save(tmp_path / f"{number}.sums.npy", np.array([row_sum(np.full((1, 3), number, np.float16))], np.uint32))
    digests = {"pixels_sha256": "pixels.npy", "sums_sha256": "sums.npy"}
    files = [
        {"shard": f"{n}.parquet", "steps": 1, "sha256": ""}
        | {key: sha256_of([tmp_path / f"{n}.{name}"]) for key, name in digests.items()}
        for n in range(shards)
    ]
    manifest = {"features_version": 1, "extractor": about, "tokens": 1, "size": 3, "files": files}
    manifest["shards"] = {"manifest_sha256": ""}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + shards // 2, hard))
        assert [FeatureStore(tmp_path).find(screens[n])[0, 0] for n in (0, shards - 1)] == [0, shards - 1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_screens_whose_digests_share_their_first_half_are_told_apart():
    rows = np.zeros((4, 16), np.uint8)
    rows[1:, 15] = 1, 2, 1
    index = PixelIndex([rows[:2], rows[2:]])
    absent = bytes(15) + b"\3"
    assert [index.row(digest) for digest in (*(row.tobytes() for row in rows), absent)] == [0, 1, 2, 1, None]
    assert PixelIndex([]).row(absent) is None


def test_the_index_takes_24_bytes_a_step():
    index = PixelIndex([np.random.default_rng(0).integers(0, 256, (1000, 16), np.uint8)])
    assert sum(array.nbytes for array in vars(index).values()) == 24 * 1000


def test_pixels_of_another_shape_have_another_digest():
    assert pixel_digest(np.zeros((4, 2, 3), np.uint8)) != pixel_digest(np.zeros((2, 4, 3), np.uint8))


def test_a_store_pickles_without_its_index(made, dataset):
    store = FeatureStore(made / "features")
    store.find(dataset[0].steps[0].screenshot)
    again = pickle.loads(pickle.dumps(store))  # noqa: S301 (of this process)
    assert "_index" not in vars(again)
    assert np.array_equal(again.steps(dataset, 0), store.steps(dataset, 0))


def test_the_manifest_describes_extractor_shards_and_files(made, settings):
    manifest = FeatureStore(made / "features").manifest
    assert manifest["extractor"]["extractor"] == "dinov2"
    assert manifest["extractor"]["digest"] == load_extractor(settings).digest
    assert (manifest["tokens"], manifest["size"], manifest["dtype"], manifest["steps"]) == (16, 32, "float16", 20)
    assert [(file["shard"], file["features"], file["steps"]) for file in manifest["files"]] == [
        (f"{subset}/{subset}-00000-of-00001.parquet", f"{subset}/{subset}-00000-of-00001.npy", 10)
        for subset in ("general", "single")
    ]


def test_a_folder_without_a_manifest_is_incomplete(copy):
    (copy / "features" / "manifest.json").unlink()
    with pytest.raises(
        DatasetError, match=r"features has no manifest.json: .* run the same `vlm-agent features` again"
    ):
        FeatureStore(copy / "features")


@pytest.mark.parametrize("content", ["{", "[]", '{"features_version": 1}', '{"files": [], "schema_version": 2}'])
def test_another_manifest_is_refused(copy, content):
    (copy / "features" / "manifest.json").write_text(content)
    with pytest.raises(DatasetError, match=r"manifest.json (is not a manifest of features|is damaged)"):
        FeatureStore(copy / "features")


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("extractor.checkpoint", None, "extractor.checkpoint: Field required"),
        ("extractor.form", "odd", "extractor.form: Input should be 'pooled' or 'patches'"),
        ("extractor.digest", 3, "extractor.digest: Input should be a valid string"),
        ("tokens", "x", "tokens: Input should be a valid integer"),
        ("shards.manifest_sha256", None, "shards.manifest_sha256: Field required"),
        ("files", [{"shard": "a.parquet", "steps": "5"}], "files.0.steps: Input should be a valid integer"),
        ("files", [3], "files.0: Input should be an object"),
    ],
)
def test_a_manifest_with_a_wrong_key_is_refused_by_name(copy, key, value, complaint):
    path = copy / "features" / "manifest.json"
    manifest = read_checked(path, "")
    section, _, name = key.rpartition(".")
    content = manifest[section] if section else manifest
    content.pop(name)
    if value is not None:
        content[name] = value
    write_json(path, manifest)
    with pytest.raises(DatasetError, match=re.escape(f"{path} is not a manifest of features: {complaint};")):
        FeatureStore(copy / "features")


def test_a_manifest_of_a_later_version_is_refused(copy):
    path = copy / "features" / "manifest.json"
    write_json(path, read_checked(path, "") | {"features_version": 99})
    with pytest.raises(DatasetError, match=r"manifest.json has features_version 99, this program reads 1"):
        FeatureStore(copy / "features")


def test_features_of_other_shards_are_refused(made, settings, tmp_path):
    others = ShardDataset(write_several(tmp_path / "others", first=50))
    complaint = _complaint(made, others, settings)
    assert f"{made / 'features' / 'manifest.json'} is of other shards than {others.directory}" in complaint
    assert f"extract them with `vlm-agent features {others.directory} --extractor dinov2 --form patches" in complaint


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"form": "pooled"}, "has form patches, and model.features.form is pooled"),
        ({"extractor": "vit"}, "has extractor dinov2, and model.features.extractor is vit"),
    ],
)
def test_features_of_another_extractor_or_form_are_refused(made, dataset, settings, changes, complaint):
    found = _complaint(made, dataset, settings.model_copy(update=changes))
    assert f"{made / 'features' / 'manifest.json'} {complaint}" in found
    assert "extract them with `vlm-agent features SHARDS" in found


def test_features_of_another_size_are_refused(copy, dataset, settings, checkpoint, tmp_path):
    path = copy / "features" / "manifest.json"
    write_json(path, read_checked(path, "") | {"tokens": 9})
    complaint = _complaint(copy, dataset, settings)
    assert f"{path} has features of size (9, 32) (tokens, numbers), and model.features has (16, 32)" in complaint


def test_features_of_another_checkpoint_are_refused_and_of_a_copy_accepted(
    made, dataset, settings, checkpoint, tmp_path
):
    moved = shutil.copytree(checkpoint, tmp_path / "moved")
    elsewhere = settings.model_copy(update={"checkpoint": str(moved)})
    FeatureStore(made / "features").check(dataset, elsewhere)
    weights = moved / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    complaint = _complaint(made, dataset, elsewhere)
    assert f"manifest.json is of another checkpoint of dinov2 ({checkpoint}) than model.features ({moved})" in complaint


def test_features_of_another_extractor_than_a_trained_models_are_refused(made, dataset, settings):
    assert "is of another checkpoint of dinov2" in _complaint(made, dataset, settings, digest="0" * 64)


def test_features_of_another_precision_than_a_trained_models_are_refused(made, dataset, settings):
    store = FeatureStore(made / "features")
    store.check(dataset, settings, store.digest, "float32")
    with pytest.raises(DatasetError) as raised:
        store.check(dataset, settings, store.digest, "bfloat16")
    assert (
        f"{made / 'features' / 'manifest.json'} has features computed in float32, and the model was trained on "
        "features computed in bfloat16; extract them with `vlm-agent features SHARDS --extractor dinov2 --form patches "
    ) in str(raised.value)
    assert " --bf16 --output DIR` and set data.features to DIR" in str(raised.value)


def test_a_checkpoint_that_cannot_be_compared_is_an_error(made, dataset, settings, checkpoint, tmp_path):
    for name in ("config.json", "preprocessor_config.json"):
        shutil.copy(checkpoint / name, tmp_path)
    complaint = _complaint(made, dataset, settings.model_copy(update={"checkpoint": str(tmp_path)}))
    assert f"manifest.json is of checkpoint {checkpoint}, and model.features.checkpoint, {tmp_path}" in complaint
    assert "has no model.safetensors" in complaint


@pytest.mark.parametrize("ending", [".npy", ".pixels.npy"])
@pytest.mark.parametrize("kept", [0.5, 0.001, 0.0])
def test_half_a_file_is_refused_by_name(copy, settings, ending, kept):
    path = copy / "features" / f"{FIRST}{ending}"
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    complaint = _complaint(copy, ShardDataset(copy / "shards"), settings)
    assert f"{path} is damaged" in complaint
    assert "move it away and run the same `vlm-agent features` again" in complaint


def test_half_a_file_is_written_again_by_the_same_command(copy, settings, checkpoint, made):
    path = copy / "features" / f"{FIRST}.npy"
    path.write_bytes(path.read_bytes()[:1000])
    assert main(_command(copy, checkpoint)) == 0
    assert path.read_bytes() == (made / "features" / f"{FIRST}.npy").read_bytes()
    FeatureStore(copy / "features").check(ShardDataset(copy / "shards"), settings)


@pytest.mark.parametrize("ending", [".npy", ".pixels.npy"])
def test_a_missing_file_is_refused_by_name(copy, settings, ending):
    path = copy / "features" / f"{FIRST}{ending}"
    path.unlink()
    complaint = _complaint(copy, ShardDataset(copy / "shards"), settings)
    assert f"{path} is missing; run the same `vlm-agent features` again to restore it" in complaint


def test_a_missing_step_is_refused_by_name(copy, settings):
    path = copy / "features" / f"{FIRST}.npy"
    np.save(path, np.load(path)[:-1])
    complaint = _complaint(copy, ShardDataset(copy / "shards"), settings)
    assert f"{path} holds float16 (9, 16, 32), and float16 (10, 16, 32) is expected; move it" in complaint


def test_a_shard_with_another_number_of_steps_is_refused_by_name(copy, settings):
    manifest = copy / "features" / "manifest.json"
    content = read_checked(manifest, "")
    content["files"][0]["steps"] = 9
    write_json(manifest, content)
    complaint = _complaint(copy, ShardDataset(copy / "shards"), settings)
    assert f"{copy / 'features' / FIRST}.npy has the features of 9 steps, and" in complaint


def test_a_shard_without_features_is_refused_by_name(copy, settings):
    manifest = copy / "features" / "manifest.json"
    content = read_checked(manifest, "")
    del content["files"][0]
    write_json(manifest, content)
    assert "manifest.json lacks general-00000-of-00001.npy" in _complaint(copy, ShardDataset(copy / "shards"), settings)


def test_a_flipped_bit_in_features_is_noticed_when_the_step_is_read(copy):
    path = copy / "features" / f"{FIRST}.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 4
    path.write_bytes(content)
    dataset, store = ShardDataset(copy / "shards"), FeatureStore(copy / "features")
    last = [index for index in range(len(dataset)) if dataset.place(index)[0].startswith(FIRST)][-1]
    features = store.steps(dataset, last)
    assert all(len(features[step]) for step in range(len(features) - 1))
    with pytest.raises(DatasetError, match=r"npy is damaged \(the checksum of step 9 differs\); move it away and run"):
        features[len(features) - 1]
    with pytest.raises(DatasetError, match="the checksum of step 9 differs"):
        store.find(dataset[last].steps[-1].screenshot)


def test_features_of_shards_of_an_earlier_version_remain_valid(copy, settings):
    """Earlier versions wrote manifests without a checksum, and features referred to the bytes of the whole file."""
    manifest = copy / "shards" / "manifest.json"
    earlier = content_of(manifest, "")
    manifest.write_bytes(earlier)
    FeatureStore(copy / "features").check(ShardDataset(copy / "shards"), settings)
    digest = FeatureStore(copy / "features").manifest["shards"]["manifest_sha256"]
    assert digest == hashlib.sha256(earlier).hexdigest()


def test_an_array_of_python_objects_is_never_unpickled(copy, settings):
    path = copy / "features" / f"{FIRST}.npy"
    np.save(path, np.array([{}], object), allow_pickle=True)
    assert f"{path} is damaged" in _complaint(copy, ShardDataset(copy / "shards"), settings)
