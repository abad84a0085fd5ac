"""Programs that a suite runs in processes of their own, some of them in another environment."""
