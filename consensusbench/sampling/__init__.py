"""Stage 1 of construction: rollouts from language models, checked and paid for once."""
