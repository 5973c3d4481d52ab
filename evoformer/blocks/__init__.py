"""Layers in the order of an Algorithm."""
