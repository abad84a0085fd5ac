"""A task small enough for a CPU, and the comparison of rewards on it.

- `problems.py`: arithmetic in several steps, with a consensus node for each step;
- `model.py`: tokens, a Llama of a third of a million weights, and supervised training;
- `files.py`: the server's dataset, verl's Parquet, and a model that writes solutions;
- `training.py`: the server and `python -m verl.trainer.main_ppo` for one arm and one seed;
- `results.py`: the results of a run, from the score log and verl's own metrics.
"""
