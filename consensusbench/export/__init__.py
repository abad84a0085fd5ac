"""Datasets exported as the files of a trainer, or as a folder for the hub."""
