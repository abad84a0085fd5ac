"""verl training with the reward server beside it: recipes, checks, processes.

``recipe_files/`` holds the settings as Hydra overrides, one file a topic (``recipes.py``), which a
:class:`~consensuspr.launch.plan.Plan` puts together with a user's own (``request.py``) into the
commands that are run (``run.py``).  The training itself is verl's, unmodified.  The command is
``consensuspr launch``.
"""
