"""The page as text: its template, its style sheet and its script."""
