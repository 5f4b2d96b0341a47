"""`vlm-agent doctor`: which parts of this machine work, each shown by a real action.

Each check runs in a process of its own (`examine.py`), because a driver or a server that hangs must not hang the
others. A new check is a function and its `Check` in one of the files, and a line in `CHECKS`.
"""

from vlm_agent.cli.doctor.check import Check
from vlm_agent.cli.doctor.checks.hardware import BFLOAT16, DEEPSPEED, GPU, TRAINING
from vlm_agent.cli.doctor.checks.programs import ADB, CHROMIUM, OCR, SERVING, SLURM, VARIANTS

CHECKS: dict[str, Check] = {
    "training": TRAINING,
    "gpu": GPU,
    "bfloat16": BFLOAT16,
    "deepspeed": DEEPSPEED,
    "slurm": SLURM,
    "adb": ADB,
    "chromium": CHROMIUM,
    "ocr": OCR,
    "serving": SERVING,
    "variants": VARIANTS,
}
