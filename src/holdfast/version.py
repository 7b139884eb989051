"""The version, for whoever must know it without importing the package's surface."""

VERSION = "0.1.0"
