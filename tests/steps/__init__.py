"""Durable functions: the laws of their steps, on both stores."""
