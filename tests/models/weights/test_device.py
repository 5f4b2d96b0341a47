"""GPUs that PyTorch cannot use are an error that names driver and build, and a log begins with the device."""

from types import SimpleNamespace

import pytest
import torch
from helpers import tiny
from rich.console import Console

from vlm_agent.agents.loading import load_agent
from vlm_agent.agents.scripted import ScriptedSettings
from vlm_agent.agents.vlm import VlmSettings
from vlm_agent.errors import DatasetError
from vlm_agent.models.weights import precision as device
from vlm_agent.models.weights.precision import GpuError, InstalledGpus, describe_device, installed_gpus, model_device
from vlm_agent.recipe.run import Recipe
from vlm_agent.training.train import train

VERSIONS = {
    "535.154.05": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.154.05  Thu Dec 28 15:37:48 UTC 2023\n",
    "580.65.06": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (builder@host)\n",
}


def machine(root, version, gpus):
    """What the kernel module shows of these GPUs."""
    folder = root / "proc/driver/nvidia"
    folder.mkdir(parents=True)
    (folder / "version").write_text(f"{version}GCC version:  gcc version 12.2.0\n")
    for number, name in enumerate(gpus):
        information = folder / "gpus" / f"0000:{number:02x}:00.0" / "information"
        information.parent.mkdir(parents=True)
        information.write_text(f"Model: \t\t {name}\nIRQ:   \t\t 44\n")


@pytest.fixture
def no_nvidia_smi(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "no programs"))


@pytest.fixture
def old_driver(tmp_path, monkeypatch, no_nvidia_smi):
    """A machine of two A100s with driver 535, as this process sees it, and PyTorch built for CUDA 13.0."""
    machine(tmp_path, VERSIONS["535.154.05"], ["NVIDIA A100-SXM4-80GB"] * 2)
    monkeypatch.setattr(device, "_ROOT", tmp_path)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def nvidia_smi(folder, script, monkeypatch):
    folder.mkdir()
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.parametrize("driver", VERSIONS)
def test_gpus_and_driver_are_found_in_the_files_of_the_kernel_module(tmp_path, no_nvidia_smi, driver):
    machine(tmp_path, VERSIONS[driver], ["NVIDIA H100 80GB HBM3"] * 8)
    assert installed_gpus(tmp_path) == InstalledGpus(("NVIDIA H100 80GB HBM3",) * 8, driver)


def test_gpus_are_found_by_their_devices(tmp_path, no_nvidia_smi):
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / "dev" / name).touch()
    assert installed_gpus(tmp_path) == InstalledGpus(("GPU", "GPU"), None)


def test_gpus_are_found_by_nvidia_smi(tmp_path, monkeypatch):
    nvidia_smi(tmp_path / "bin", "echo 'NVIDIA L4, 550.54.15'; echo 'NVIDIA L4, 550.54.15'", monkeypatch)
    assert installed_gpus(tmp_path) == InstalledGpus(("NVIDIA L4", "NVIDIA L4"), "550.54.15")


def test_a_machine_without_gpus_computes_on_its_cpu(tmp_path, monkeypatch):
    nvidia_smi(tmp_path / "bin", "echo 'NVIDIA-SMI has failed'; exit 9", monkeypatch)
    monkeypatch.setattr(device, "_ROOT", tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert installed_gpus(tmp_path) == InstalledGpus(())
    assert model_device() == torch.device("cpu")


def test_a_driver_that_is_too_old_is_an_error_that_names_driver_build_and_remedies(old_driver):
    with pytest.raises(GpuError) as error:
        model_device()
    for words in ("2 GPU(s) (NVIDIA A100", "CUDA 13.0", "driver 580 or newer", "535.154.05", "whl/cu126"):
        assert words in str(error.value)
    assert "CUDA_VISIBLE_DEVICES= before the command" in str(error.value)


def test_a_build_for_cpus_beside_gpus_is_an_error(old_driver, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(GpuError, match=r"is a build for CPUs, and the driver is 535\.154\.05"):
        model_device()


def test_a_driver_that_is_new_enough_leaves_container_and_job_as_causes(old_driver, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(GpuError, match=r"its message is .*a container without GPUs .*CUDA_VISIBLE_DEVICES=7"):
        model_device()


@pytest.mark.parametrize("value", ["", "-1", "NoDevFiles"])
def test_hidden_gpus_are_a_deliberate_run_on_the_cpu(old_driver, monkeypatch, value):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert model_device() == torch.device("cpu")
    assert "device: CPU" in describe_device(model_device())
    assert "GPUs are hidden" in describe_device(model_device())


@pytest.mark.parametrize(("capability", "usable"), [((7, 0), False), ((7, 5), True), ((9, 0), True)])
def test_a_gpu_without_kernels_in_this_build_is_an_error(monkeypatch, capability, usable):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_80", "sm_90", "compute_120"])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla V100-SXM2-32GB")
    if usable:
        assert model_device() == torch.device("cuda")
    else:
        with pytest.raises(GpuError, match=r"Tesla V100-SXM2-32GB has compute capability 7\.0.*from 7\.5 on.*cu126"):
            model_device()


def test_training_names_its_device_before_it_reads_data(tmp_path):
    console = Console(record=True, width=200)
    with pytest.raises(DatasetError):
        train(Recipe.model_validate(tiny.recipe(tmp_path / "missing", tmp_path / "run")), console)
    shown = console.export_text()
    assert shown.startswith("device: CPU")
    assert "1 rank(s)" in shown


def test_training_beside_gpus_that_cannot_be_used_ends_before_it_reads_data(old_driver, tmp_path):
    with pytest.raises(GpuError):
        train(Recipe.model_validate(tiny.recipe(tmp_path / "missing", tmp_path / "run")), Console())


def test_loading_the_agent_of_a_model_names_its_device_first(old_driver, monkeypatch):
    settings, console = VlmSettings(run="phone_vlm_tiny"), Console(record=True, width=200)
    with pytest.raises(GpuError):
        load_agent(settings, console)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert load_agent(settings, console).model.device == torch.device("cpu")
    assert console.export_text().startswith("device: CPU")


def test_an_agent_without_a_model_here_has_no_device():
    assert ScriptedSettings(actions=["press home"]).device() is None


@pytest.fixture
def fa4(monkeypatch):
    """An installed flash-attn-4; the activations in a list."""
    activations = []
    device.use_fa4.cache_clear()
    monkeypatch.setattr(device, "is_flash_attn_4_available", lambda: True)
    monkeypatch.setattr(device.attention, "activate_flash_attention_impl", activations.append)
    monkeypatch.setattr(device, "_attend", lambda: None)
    yield activations
    device.use_fa4.cache_clear()


def test_flash_attention_4_is_activated_once_where_it_is_installed(fa4):
    assert device.use_fa4((9, 0))
    assert device.use_fa4((9, 0))
    assert fa4 == ["FA4"]


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (12, 0)])
def test_other_gpus_than_hopper_and_blackwell_of_data_centres_keep_flash_attention_2(fa4, capability):
    assert not device.use_fa4(capability)
    assert fa4 == []


def test_without_the_package_or_in_an_older_torch_flash_attention_2_runs(fa4, monkeypatch):
    monkeypatch.setattr(device, "is_flash_attn_4_available", lambda: False)
    assert not device.use_fa4((9, 0))
    device.use_fa4.cache_clear()
    monkeypatch.setattr(device, "is_flash_attn_4_available", lambda: True)
    monkeypatch.delattr(device.attention, "activate_flash_attention_impl")
    assert not device.use_fa4((9, 0))


def test_an_installation_that_fails_is_logged_and_flash_attention_2_is_restored(fa4, monkeypatch, caplog):
    def fail():
        raise ValueError("too many values to unpack (expected 2)")

    monkeypatch.setattr(device, "_attend", fail)
    monkeypatch.setattr(device.attention, "restore_flash_attention_impl", lambda: fa4.append("FA2"))
    assert not device.use_fa4((9, 0))
    assert not device.use_fa4((9, 0))
    assert fa4 == ["FA4", "FA2"]
    assert "FlashAttention-2 runs (ValueError: too many values" in caplog.text
    assert caplog.text.count("flash-attn-4 is installed and fails") == 1


@pytest.mark.parametrize(("capability", "flash"), [((9, 0), "FA4"), ((8, 0), "FA2")])
def test_the_line_of_a_gpu_names_the_release_of_flash_attention(fa4, monkeypatch, capability, flash):
    properties = SimpleNamespace(name="NVIDIA H200", total_memory=150e9, major=capability[0], minor=capability[1])
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    assert describe_device(torch.device("cuda")).endswith(f"attention: {flash}")
