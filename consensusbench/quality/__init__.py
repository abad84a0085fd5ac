"""Quality of datasets: ``validate``, its probes, ``stats``, and ``diagnose`` for rollouts."""
