"""verl training with the reward server beside it: recipes, checks, processes.

``recipes/`` holds the settings as Hydra overrides, one file a topic, which a :class:`Plan` puts
together with a user's own into the command that is run; :func:`launch` runs it.  The training
itself is verl's, unmodified.  The command is ``consensuspr launch``.
"""

from consensuspr.launch.plan import Plan, Request, Training, make_plan
from consensuspr.launch.recipes import ALGORITHMS, MODELS, REWARDS, Overrides
from consensuspr.launch.run import launch

__all__ = [
    "ALGORITHMS",
    "MODELS",
    "REWARDS",
    "Overrides",
    "Plan",
    "Request",
    "Training",
    "launch",
    "make_plan",
]
