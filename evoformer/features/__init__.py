"""From an alignment to the features of AlphaFold 2: reading, sampling, clustering, masking, batching."""
