"""The repositories that `penstock demo` writes: our demo models, or those of Triton's examples."""

from penstock.demo.examples import write_examples
from penstock.demo.repository import DemoError, write_demo

__all__ = ["DemoError", "write_demo", "write_examples"]
