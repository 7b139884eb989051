"""The classes that a store must pass, and what they ask of it."""

from holdfast.testing.conformance.harness import AsyncHarness, Harness, SyncHarness
from holdfast.testing.conformance.lifecycle import LifecycleConformance

__all__ = ["AsyncHarness", "Harness", "LifecycleConformance", "SyncHarness"]
