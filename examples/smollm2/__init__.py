"""GRPO on a real model: SmolLM2-135M-Instruct on GSM8K, with and without nodes (README.md)."""
