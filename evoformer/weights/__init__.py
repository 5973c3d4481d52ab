"""Published weights: other libraries' names to ours and back, and files to modules."""
