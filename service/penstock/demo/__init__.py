"""The demo model repository that `penstock demo DIR` writes."""

from penstock.demo.repository import DemoError, write_demo

__all__ = ["DemoError", "write_demo"]
