"""The device that runs real models through torch."""

from backend.torch_device.device import TorchDevice
from backend.torch_device.modules import UnsupportedModel

__all__ = ["TorchDevice", "UnsupportedModel"]
