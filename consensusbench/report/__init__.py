"""Pages to keep about rollouts or runs: ``page`` writes them, ``charts`` fills the charts."""
