"""GPUs are found by the names that people and PyTorch give them, and by no other."""

import pytest

from vlm_agent.training.dry_run.hardware import GPUS, HardwareError, find_gpu, gpu_of_device


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("H100", "H100"),
        ("h200", "H200"),
        ("A100", "A100-80"),
        ("A100-40", "A100-40"),
        ("l40s", "L40S"),
        ("RTX 4090", "4090"),
        ("nvidia v100-16", "V100-16"),
    ],
)
def test_a_gpu_is_found_by_its_common_names(text, name):
    assert find_gpu(text).name == name


def test_an_unknown_gpu_is_refused_with_the_nearest_and_all_known():
    with pytest.raises(HardwareError, match=r"--gpu H10O: .* did you mean H100\? Known: .*A100-40"):
        find_gpu("H10O")


def test_devices_are_identified_by_their_exact_names():
    assert gpu_of_device("NVIDIA H200").name == "H200"
    assert gpu_of_device("NVIDIA A100-SXM4-40GB").memory == 40 * 10**9
    assert gpu_of_device("Tesla V100-SXM2-32GB").name == "V100-32"
    assert gpu_of_device("NVIDIA H200 MIG 1g.18gb") is None
    assert gpu_of_device("NVIDIA L40") is None  # no L4, though it begins like one


def test_peaks_are_without_sparsity_and_in_the_requested_dtype():
    assert find_gpu("A100").peak(bf16=True) == 312e12
    assert find_gpu("A100").peak(bf16=False) == 19.5e12
    assert find_gpu("V100").peak(bf16=False) == 15.7e12
    with pytest.raises(HardwareError, match="V100-32 has no bfloat16"):
        find_gpu("V100").peak(bf16=True)


def test_every_entry_has_its_own_name_devices_and_source():
    assert len({gpu.name.lower() for gpu in GPUS}) == len(GPUS)
    devices = [name for gpu in GPUS for name in gpu.device_names]
    assert len(set(devices)) == len(devices)
    assert all(gpu.source and gpu.fp32 < (gpu.bf16 or 1e18) and gpu.memory >= 16e9 for gpu in GPUS)
