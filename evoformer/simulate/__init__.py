"""Toy protein families with a known contact map: random folds, Potts models on them, sequences along a tree."""
