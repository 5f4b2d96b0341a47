"""Puts FOLDERS and FILES of the top into the wheel, as vlm_agent/_shipped. All else: pyproject.toml"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

FOLDERS = ("recipes", "eval", "deepspeed_configs", "docs")
FILES = ("requirements.txt",)
PICTURES = shutil.ignore_patterns("*.png", "*.gif", "*.svg")


class BuildWithRecipes(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # an editable install reads them in the checkout
            for folder in FOLDERS:
                target = Path(self.build_lib, "vlm_agent", "_shipped", folder)
                shutil.copytree(folder, target, dirs_exist_ok=True, ignore=PICTURES)
            for name in FILES:
                shutil.copy(name, Path(self.build_lib, "vlm_agent", "_shipped", name))


setup(cmdclass={"build_py": BuildWithRecipes})
