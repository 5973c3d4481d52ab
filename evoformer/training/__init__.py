"""Training with PyTorch Lightning. Nothing outside this folder imports Lightning."""
