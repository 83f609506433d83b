"""Devices that run real models through torch: `choose` picks one. Importing this package does not import torch."""
