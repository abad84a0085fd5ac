"""Stages 2 and 3 of construction for one problem: candidate nodes, and the choice among them."""
