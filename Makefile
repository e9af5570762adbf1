# Everything happens in .venv inside this folder; needed are only Python >= 3.11, a C compiler and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test check bench faults transformerlens format clean

demo: $(VENV)/.demo  ## what jumok does, in a minute
	$(BIN)/jumok demo

test: $(VENV)/.dev  ## every test
	$(BIN)/python -m pytest

check: $(VENV)/.dev  ## style and types (shapes are checked while the tests run)
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy

bench: $(VENV)/.dev  ## speed and memory, as ratios; minutes
	$(BIN)/python bench/attend.py
	$(BIN)/python bench/lens.py

faults: $(VENV)/.dev  ## training killed 200 times at random, and thrice at every place of a save; many minutes
	JUMOK_FAULTS=200 $(BIN)/python -m pytest tests/faults -n 0

# an environment of its own: TransformerLens asks for versions that are not ours
transformerlens: $(VENV)/.dev  ## what TransformerLens says of our model tiny, made anew and compared; minutes
	$(PYTHON) -m venv .venv-transformerlens
	.venv-transformerlens/bin/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)" transformer_lens==4.3.0
	rm -rf .venv-transformerlens/tiny
	$(BIN)/python -c "import jumok; jumok.save(jumok.load('tiny'), '.venv-transformerlens/tiny', 'huggingface')"
	HF_HUB_OFFLINE=1 .venv-transformerlens/bin/python bench/transformerlens.py .venv-transformerlens/tiny > tests/references/transformerlens.json
	HF_HUB_OFFLINE=1 .venv-transformerlens/bin/python bench/transformerlens.py .venv-transformerlens/tiny --speed
	$(BIN)/python -m pytest -n 0 tests/test_transformerlens.py

format: $(VENV)/.dev
	$(BIN)/ruff check --fix src tests bench
	$(BIN)/ruff format src tests bench

clean:
	rm -rf $(VENV) .venv-transformerlens

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch first and alone: the pinned version, before any other package can ask for a newer one
$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (PyTorch is large: a few minutes the first time) ..."
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	$(PIP) --editable ".[all]"
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(PIP) --editable ".[all,dev]"
	@touch $@
