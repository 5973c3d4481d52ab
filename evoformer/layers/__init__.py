"""One `nn.Module` per Algorithm of the AlphaFold 2 supplement. A layer returns its update; the block adds it."""
