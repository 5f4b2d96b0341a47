"""`vlm-agent doctor`: which parts of this machine work, each shown by a real action (`checks/`, one file each).

Each check runs in a process of its own (`examine.py`), because a driver or a server that hangs must not hang the
others. A new check is a file in `checks/` and a line in `CHECKS`.
"""

from vlm_agent.cli.doctor.check import Check
from vlm_agent.cli.doctor.checks.adb import ADB
from vlm_agent.cli.doctor.checks.bfloat16 import BFLOAT16
from vlm_agent.cli.doctor.checks.chromium import CHROMIUM
from vlm_agent.cli.doctor.checks.deepspeed import DEEPSPEED
from vlm_agent.cli.doctor.checks.gpu import GPU
from vlm_agent.cli.doctor.checks.ocr import OCR
from vlm_agent.cli.doctor.checks.serving import SERVING
from vlm_agent.cli.doctor.checks.slurm import SLURM
from vlm_agent.cli.doctor.checks.training import TRAINING
from vlm_agent.cli.doctor.checks.variants import VARIANTS

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
