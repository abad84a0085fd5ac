"""A task small enough for a CPU, and the comparison of rewards on it.

- `problems.py`: arithmetic in several steps, with a consensus node for each step;
- `files.py`: the same as a dataset of the server and as verl's Parquet;
- `model.py`: a tokenizer, a Llama of 0.2 million weights, and the supervised phase that makes it
  write solutions, seldom right ones;
- `training.py`: the server and `python -m verl.trainer.main_ppo` for one arm and one seed;
- `results.py`: what the score log and verl's own metrics say of a run; their table.
"""
