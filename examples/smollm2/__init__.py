"""GRPO on a real model: SmolLM2-135M-Instruct on GSM8K, with and without nodes (README.md)."""

import examples.study  # noqa: F401  (puts examples/verl_cpu on the path)
